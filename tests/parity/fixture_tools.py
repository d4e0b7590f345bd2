"""Fixtures of the published networks: weights made by the rule in the JSON, inputs and outputs from the npz.

The folder is ``data`` beside this file (made by thin_fixtures.py), or the environment variable
``PROTODEPTH_FIXTURES`` for another set.
"""

import json
import math
import os
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from protodepth.types import Batch

TOLERANCE = 1e-4  # relative to the largest absolute value; most agree to 1e-6
FOLDER = Path(os.environ.get("PROTODEPTH_FIXTURES", Path(__file__).resolve().parent / "data"))


def relative_error(actual: Tensor | np.ndarray, expected: np.ndarray) -> float:
    actual = actual.detach().numpy() if isinstance(actual, Tensor) else np.asarray(actual)
    scale = max(float(np.abs(expected).max(initial=0)), 1e-12)
    return float(np.abs(actual.astype(np.float64) - expected).max(initial=0) / scale)


class Arrays:
    """The arrays of a fixture; some are stored once, in the fixture that had them first."""

    def __init__(self, path: Path, same: dict[str, list[str]]) -> None:
        self.own, self.same = np.load(path.with_suffix(".npz")), same
        self.others = {name: np.load(path.with_name(f"{name}.npz")) for name, _ in same.values() if name != path.stem}

    @property
    def files(self) -> list[str]:
        return [*self.own.files, *self.same]

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self.same:
            return self.own[key]
        name, stored = self.same[key]
        return self.others.get(name, self.own)[stored]


class Fixture:
    def __init__(self, name: str) -> None:
        path = FOLDER / f"{name}.json"
        if not path.exists():
            pytest.skip(f"no fixture {name} in {FOLDER.name}/ (set PROTODEPTH_FIXTURES to the folder that has them)")
        self.name = name
        self.meta: dict[str, Any] = json.loads(path.read_text())
        self.arrays = Arrays(path, self.meta.get("same", {}))

    # -- inputs and outputs

    @property
    def cases(self) -> list[str]:
        return [case["tag"] for case in self.meta["cases"]]

    def __getitem__(self, key: str) -> Tensor:
        return torch.from_numpy(self.arrays[key])

    def image(self, case: str, index: int) -> Tensor:
        return self[f"{case}/in/image{index}"].float() / 255

    def batch(self, case: str) -> Batch:
        return Batch(
            image=self.image(case, 0),
            sparse_depth=self[f"{case}/in/sparse_depth"],
            intrinsics=self[f"{case}/in/intrinsics"],
            neighbours=(self.image(case, 1), self.image(case, 2)),
        )

    def has(self, key: str) -> bool:
        return key in self.arrays.files or f"{key}__sample" in self.arrays.files

    def outputs(self, case: str, kind: str = "out") -> list[str]:
        """Names of everything stored for a case, sampled or whole."""
        prefix = f"{case}/{kind}/"
        names = [key.removeprefix(prefix).split("__")[0] for key in self.arrays.files if key.startswith(prefix)]
        return list(dict.fromkeys(names))

    def check(self, key: str, actual: Tensor, tolerance: float = TOLERANCE) -> None:
        found, expected = self.pair(key, actual)
        assert relative_error(found, expected) < tolerance, key
        if f"{key}__stat" in self.arrays.files:
            flat = actual.detach().numpy().reshape(-1)
            stat = np.array([flat.mean(dtype=np.float64), flat.std(dtype=np.float64), np.abs(flat).max()])
            assert relative_error(stat, self.arrays[f"{key}__stat"]) < tolerance, key

    def pair(self, key: str, actual: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """What was found and what is stored under a key, at the stored places."""
        values = actual.detach().numpy()
        if key in self.arrays.files:
            assert values.shape == self.arrays[key].shape, key
            return values, self.arrays[key]
        rule = self.meta["sampled"][key]
        assert list(values.shape) == rule["shape"], key
        return values.reshape(-1)[:: rule["stride"]], self.arrays[f"{key}__sample"]

    def rows(self, key: str) -> np.ndarray:
        """The sample of the batch that each stored place belongs to."""
        if key in self.arrays.files:
            shape, step = self.arrays[key].shape, 1
        else:
            shape, step = self.meta["sampled"][key]["shape"], self.meta["sampled"][key]["stride"]
        return np.arange(0, math.prod(shape), step) // math.prod(shape[1:])

    # -- weights by rule

    def checkpoint(self, part: str) -> dict[str, Any]:
        """The content of an official checkpoint file (``depth``, ``pose``, ``tokens`` or ``scaffnet_standalone``)."""
        return dict(self._entries(part))

    def _entries(self, part: str) -> Iterator[tuple[str, Any]]:
        before = {"pose": "posenet:", "tokens": "tokens:"}.get(part, "")
        for entry in self.meta["checkpoint"][part]:
            key, kind = entry["key"], entry["type"]
            if kind == "state_dict":
                tensors = {n: self._weight(f"{before}{key}/{n}", n, shape) for n, shape, _ in entry["tensors"]}
                yield key, tensors
            elif kind == "Parameter":
                yield key, torch.nn.Parameter(self._normal(f"{before}{key}", entry["shape"]))
            elif kind == "optimizer_state_dict":
                yield key, {"state": {}, "param_groups": entry["param_groups"]}
            else:
                yield key, entry["value"]

    @cached_property
    def _rule(self) -> dict[str, Any]:
        return self.meta["weight_rule"]

    def _rng(self, s: str) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32((self._rule["PREFIX"] + s).encode()))

    def _normal(self, s: str, shape: list[int]) -> Tensor:
        return torch.from_numpy(self._rng(s).standard_normal(shape).astype(np.float32))

    def _weight(self, s: str, name: str, shape: list[int]) -> Tensor:
        rng = self._rng(s)
        if name.endswith("num_batches_tracked"):
            return torch.tensor(0)
        if name.endswith("running_var"):
            value = 1 + 0.1 * rng.random(shape)
        elif name.endswith("running_mean"):
            value = 0.1 * rng.standard_normal(shape)
        elif "_linear_state_dict/" in s or (len(shape) == 1 and name.endswith(".weight")):
            value = 1 + 0.1 * rng.standard_normal(shape)
        elif len(shape) == 1:
            value = 0.1 * rng.standard_normal(shape)
        else:
            gain = self._rule["gains"].get(s, 1.0)
            value = rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:])) * gain
        return torch.from_numpy(np.asarray(value, dtype=np.float32))

    def write(self, part: str, folder: Path, prefix: str = "") -> Path:
        """An official checkpoint file, optionally with ``module.`` before every tensor name."""
        content = self.checkpoint(part)
        if prefix:
            content = {
                key: {prefix + n: t for n, t in value.items()} if self._is_state(key, value) else value
                for key, value in content.items()
            }
        path = folder / f"{self.name}-{part}.pth"
        torch.save(content, path)
        return path

    @staticmethod
    def _is_state(key: str, value: object) -> bool:
        return isinstance(value, dict) and key.endswith("state_dict") and "optimizer" not in key


def load_parts(module: torch.nn.Module, content: dict[str, Any], keys: dict[str, str]) -> None:
    """Rule-made tensors straight into a module, strictly: the oracle for the code that reads files."""
    state = {f"{ours}.{n}": t for theirs, ours in keys.items() if theirs in content for n, t in content[theirs].items()}
    module.load_state_dict(state, strict=True)
