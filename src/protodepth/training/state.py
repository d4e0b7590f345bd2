"""What a training needs to go on after it was stopped, in a folder."""

import logging
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from protodepth import distributed
from protodepth.errors import CheckpointError
from protodepth.methods.base import Method, part
from protodepth.storage import files
from protodepth.storage.paths import check_inside
from protodepth.storage.space import check_space

logger = logging.getLogger("protodepth")
STATES = 3  # that a disk must hold: the last, the next, and what is made of them
STATE_FILE = re.compile(r"state-(\d+)\.safetensors")


def write_state(
    folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], keep: int = 1
) -> None:
    """``state-<step>.safetensors`` and then ``state.json``, which names it by its checksum and is sealed itself:
    two files, one commit, so that an old pair stays valid until the end.  The last ``keep`` tensor files stay.
    """
    name = f"state-{step}.safetensors"
    sha256 = files.write_tensors(folder / name, tensors)
    files.write_sealed(folder / "state.json", {**facts, "step": step, "file": name, "sha256": sha256})
    stored = sorted((int(match[1]), file) for file in folder.iterdir() if (match := STATE_FILE.fullmatch(file.name)))
    others = [file for number, file in stored if number != step]
    for old in others[: max(0, len(others) + 1 - keep)]:
        old.unlink()


def read_state_tensors(folder: Path, facts: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors that a ``state.json`` names; a ValueError if it names a file that is not its step's."""
    file = STATE_FILE.fullmatch(facts["file"])
    if file is None or int(file[1]) != facts["step"]:
        raise ValueError(f"file {facts['file']!r} is not that of step {facts['step']!r}")
    return files.read_tensors(check_inside(folder / file[0], folder), facts["sha256"])


@contextmanager
def whole_state(place: Path) -> Iterator[None]:
    """What is missing or of the wrong kind in a state is one clear error."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CheckpointError(
            f"{place} is incomplete, damaged or of another version ({reason}): begin again with another --out"
        ) from None


def optimiser_state(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor], mark: str) -> dict[str, Any]:
    """What an optimiser loads, from tensors named ``<parameter><mark><what>``."""
    values: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        index, name = key.split(mark, 1)
        values.setdefault(int(index), {})[name] = tensor
    return {**optimiser.state_dict(), "state": values}


@runtime_checkable
class Keeper(Protocol):
    """Something that watches a training and whose own state is kept with it, to go on after a stop."""

    @property
    def done(self) -> bool: ...
    def tensors(self) -> dict[str, Tensor]: ...
    def facts(self) -> dict[str, Any]: ...
    def go_on(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None: ...


class TrainingState:
    """The state of one ``fit`` in a folder: method, pose network and optimiser as tensors, the step as JSON; no pickle.

    All processes read it, the first writes it.
    """

    def __init__(
        self,
        folder: Path | None,
        method: Method,
        optimiser: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
        about: dict[str, Any],
        keeper: Keeper | None = None,
    ) -> None:
        self.keeper = keeper
        self.folder, self.method, self.optimiser, self.scaler, self.about = folder, method, optimiser, scaler, about
        self.counts: dict[str, Any] = {}  # what was counted so far, for a run that goes on
        self.token = distributed.from_first(uuid.uuid4().hex)

    def save(self, step: int) -> None:
        if self.folder is not None and distributed.leads():
            self._write(self.folder, step)
            for mark in self.folder.glob(".rescue-*"):
                mark.unlink()

    def rescue(self, step: int) -> None:
        """Save when another process is gone, be it the first:
        whoever comes first writes, for two at once would remove each other's files.
        """
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            os.close(os.open(self.folder / f".rescue-{self.token}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        self._write(self.folder, step)
        logger.warning("another process of this run is gone: step %d was saved in %s", step, self.folder)

    def _write(self, folder: Path, step: int) -> None:
        tensors = {f"method.{k}": v for k, v in self.method.state().items()}
        if self.method.objective.pose is not None:
            tensors |= {f"pose.{k}": v for k, v in self.method.objective.pose.state_dict().items()}
        for index, values in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{index}.{k}": torch.as_tensor(v) for k, v in values.items()}
        kept = {} if self.keeper is None else {"kept": self.keeper.facts()}
        tensors |= {} if self.keeper is None else {f"kept.{k}": v for k, v in self.keeper.tensors().items()}
        scaler = {"scaler": self.scaler.state_dict()} if self.scaler.is_enabled() else {}
        write_state(folder, step, tensors, {**self.about, "counts": self.counts, **scaler, **kept})

    def load(self) -> int:
        """Restore and return the step to go on from; 0 if there is nothing.  A disk without room for it is refused."""
        if self.folder is not None and distributed.leads():
            check_space(self.folder, STATES * self._size(), f"training on {self.about.get('domain', 'this data')!r}")
        step = self._read()
        if len(set(distributed.gather(step))) > 1:
            raise CheckpointError(
                f"the processes found different states in {self.folder}: --out must be a folder that all of them see"
            )
        distributed.copy_first([p for group in self.optimiser.param_groups for p in group["params"]])
        return step

    def _size(self) -> int:
        """Bytes of one state: the method, the pose network, and two moments of what is optimised."""
        pose = self.method.objective.pose
        learned = [p for group in self.optimiser.param_groups for p in group["params"]]
        tensors = [*self.method.state().values(), *(pose.state_dict().values() if pose else ()), *learned, *learned]
        return sum(t.numel() * t.element_size() for t in tensors)

    def _read(self) -> int:
        if self.folder is None or not (self.folder / "state.json").exists():
            return 0
        place = self.folder / "state.json"
        meta = files.read_sealed(place, earlier={*self.about, "step", "file", "sha256", "scaler"})
        for key, value in self.about.items():
            if meta.get(key) != value:
                raise CheckpointError(
                    f"{self.folder} holds a run with {key}={meta.get(key)!r}, this one has {value!r}: "
                    "use another --out, or the same settings"
                )
        with whole_state(place):
            return self._restore(self.folder, meta)

    def _restore(self, folder: Path, meta: dict[str, Any]) -> int:
        tensors = read_state_tensors(folder, meta)
        self.method.load_state(part(tensors, "method."))
        if self.method.objective.pose is not None:
            self.method.objective.pose.load_state_dict(part(tensors, "pose."))
        self.optimiser.load_state_dict(optimiser_state(self.optimiser, part(tensors, "optimiser."), "."))
        if self.scaler.is_enabled() and "scaler" in meta:
            self.scaler.load_state_dict(meta["scaler"])
        self.counts = dict(meta.get("counts") or {})
        if self.keeper is not None:
            self.keeper.go_on(part(tensors, "kept."), meta["kept"])
        return int(meta["step"])
