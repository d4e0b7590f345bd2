"""Files that survive: safetensors and JSON with sha256, written to a temporary name and renamed.  No pickle."""

import hashlib
import json
import logging
import os
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from safetensors.torch import save as save_bytes
from torch import Tensor

from protodepth.errors import CheckpointError

logger = logging.getLogger("protodepth")
FORMAT_VERSION = 3  # of the descriptions of models and domains: sealed
_UNSEALED = 1  # their version before that, and the entries that they had then
_EARLIER = {
    "model": {"backbone", "backbone_config", "pose_config", "prototypes", "domains", "sha256", "notes"},
    "domain": {"name", "base", "config", "latents", "backbone", "backbone_sha256", "sha256", "history"},
}


def write_bytes(path: Path, data: bytes) -> str:
    """All or nothing: a temporary file beside the target, flushed to disk, then renamed.  Gives the sha256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:  # a full disk does not say which file it has no room for
        error.filename = error.filename or str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return hashlib.sha256(data).hexdigest()


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder: without it a power cut may undo a rename that was reported as done."""
    if os.name == "nt":  # a folder cannot be opened there
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, all or nothing."""
    write_bytes(path, (json.dumps(value, indent=2, sort_keys=False) + "\n").encode())


SEALED = 2  # format version of JSON that carries the sha256 of all that it holds


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """``write_json`` with a checksum over every other entry: a changed number is noticed when it is read."""
    # the version first and the seal last: no single hole takes both and leaves what looks like an earlier version's
    whole = json.loads(json.dumps({"format_version": SEALED, **value}))
    write_json(path, {**whole, "sealed": _seal(whole)})


def _seal(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_sealed(path: Path, earlier: Collection[str]) -> dict[str, Any]:
    """What ``write_sealed`` was given.  Files of earlier versions have no seal: they are taken as they are, and it is
    said.

    ``earlier``: the entries that those had.  A file without a seal and with any other is a sealed one that was changed.
    """
    value = read_json(path)
    if "sealed" not in value and "format_version" not in value and set(value) <= set(earlier):
        logger.warning("%s has no checksum (an earlier version wrote it): it is taken as it is", path)
        return value
    stated = value.pop("sealed", None)
    if stated != _seal(value):
        raise CheckpointError(
            f"{path} does not have the checksum it states: it was edited or is damaged; "
            "remove it and run the command that wrote it again"
        )
    if value.pop("format_version", None) != SEALED:
        raise CheckpointError(f"{path} has a format version that this program does not read: update protodepth")
    return value


def sha256_of(path: Path) -> str:
    """Of a file of any size, without holding it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: Path, sha256: str) -> Path:
    """The path, if the file is still what was written."""
    try:
        same = sha256_of(path) == sha256
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}): the folder is incomplete") from None
    if not same:
        raise CheckpointError(
            f"{path} does not have the checksum that is stated for it: it was edited or is damaged; "
            "remove its folder and run the command that wrote it again"
        )
    return path


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write a safetensors file; returns its sha256."""
    return write_bytes(path, tensor_bytes(tensors))


def tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """The safetensors file of these tensors; equal tensors in equal order give equal bytes."""
    # clone: a network may tie weights, and safetensors refuses tensors that share memory
    values = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    return save_bytes(values, metadata={"order": json.dumps(list(values))})


def compact(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same numbers in half the bytes where that loses none: float32 tensors that were rounded to half precision.

    >>> {name: t.dtype for name, t in compact({"a": torch.tensor([0.5]), "b": torch.tensor([0.1])}).items()}
    {'a': torch.float16, 'b': torch.float32}
    """
    exact = {name for name, t in tensors.items() if t.dtype == torch.float32 and torch.equal(t.half().float(), t)}
    return {name: t.half() if name in exact else t for name, t in tensors.items()}


def rounded(x: Tensor) -> Tensor:
    """The nearest numbers of half precision, in single precision; what is too large for it stays as it is.

    >>> rounded(torch.tensor([0.1, 1e6])).tolist()
    [0.0999755859375, 1000000.0]
    """
    near = x.half().float()
    return torch.where(near.isfinite(), near, x)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file that this program wrote; one that is missing or damaged is an error."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing: give the folder of a model, or of a domain that was exported"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not readable JSON ({error}): the folder is damaged, save it again") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}, expected a JSON object")
    return value


def read_tensors(path: Path, sha256: str) -> dict[str, Tensor]:
    """Read a safetensors file and compare its checksum: safetensors itself does not notice flipped bits.

    The tensors come in the order they were written in (safetensors gives another one in every process), of files that
    do not say it in the order of their names.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}): the folder is incomplete") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CheckpointError(
            f"{path} does not have the checksum its meta file states: the file is damaged, copy it again"
        )
    try:
        tensors = load_bytes(data)
        order = _stated_order(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is not a safetensors file ({error})") from None
    return {name: tensors[name] for name in (order if set(order) == set(tensors) else sorted(tensors))}


def _stated_order(data: bytes) -> list[str]:
    """The names of the tensors as ``write_tensors`` was given them; none if the file was written by another program."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    order = json.loads(header.get("__metadata__", {}).get("order", "[]"))
    return [str(name) for name in order] if isinstance(order, list) else []


def fingerprint(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> str:
    """sha256 over a configuration and every tensor's name, type, shape and bytes: what a domain belongs to."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()


def write_description(path: Path, kind: str, value: Mapping[str, Any]) -> None:
    """What a folder of this kind says of itself, sealed."""
    write_sealed(path, {"format_version": FORMAT_VERSION, "kind": kind, **value})


def read_description(path: Path, kind: str) -> dict[str, Any]:
    """What ``write_description`` was given, with kind and version; a changed setting is noticed."""
    meta = read_json(path)
    check_description(path, kind, meta)
    return {key: value for key, value in meta.items() if key != "sealed"}


def check_description(path: Path, kind: str, meta: Mapping[str, Any]) -> None:
    """Refuse a description of another kind of folder, of a later format version, or one that was changed."""
    if meta.get("kind") != kind:
        raise CheckpointError(
            f"{path} holds a {meta.get('kind', 'file of another program')!r}, expected a protodepth {kind!r}"
        )
    version = meta.get("format_version")
    if type(version) is not int or version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {version!r}, this program reads up to {FORMAT_VERSION}: update protodepth"
        )
    if version == _UNSEALED:  # one with other entries is a sealed one whose version was changed
        as_written = set(meta) <= {"kind", "format_version", *_EARLIER[kind]}
    else:
        as_written = meta.get("sealed") == _seal({key: value for key, value in meta.items() if key != "sealed"})
    if not as_written:
        raise CheckpointError(
            f"{path} does not have the checksum it states: it was edited or is damaged; copy the folder again"
        )


def load_state(module: torch.nn.Module, state: Mapping[str, Tensor], where: Path) -> None:
    """Tensors that were read from a file into a module, strictly; the message names the first difference."""
    expected = module.state_dict()
    for name in expected:
        if name not in state:
            raise CheckpointError(f"{where} has no tensor {name!r}: it belongs to another network or preset")
        if expected[name].shape != state[name].shape:
            raise CheckpointError(
                f"{where}: {name!r} has shape {tuple(state[name].shape)}, expected {tuple(expected[name].shape)}: "
                "another network or preset"
            )
    for name in state:
        if name not in expected:
            raise CheckpointError(f"{where} has an unexpected tensor {name!r}: it belongs to another network or preset")
    module.load_state_dict(dict(state))
