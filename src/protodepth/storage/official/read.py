"""The authors' checkpoint files: read without running anything, recognised by their layout, loaded with a full account.

Files hold a dictionary of state dicts (``encoder_state_dict``, ...), a step number and optimiser states.  KBNet's own
repository writes ``module.`` before every tensor name, the others do not; both are read.
"""

import pickle
import struct
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from protodepth.errors import CheckpointError

if TYPE_CHECKING:
    pass


PREFIX = "module."
# What torch.load raises on a file that is cut, damaged or something else; found by cutting and flipping bytes (tests).
DAMAGED = (
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    AssertionError,
    OSError,
    OverflowError,
    MemoryError,
    struct.error,
)


def read_official(path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint file, ``module.`` prefixes removed.  Only tensors and plain values are unpickled.

    >>> import tempfile, os
    >>> file = os.path.join(tempfile.mkdtemp(), "net.pth")
    >>> torch.save({"train_step": 7, "encoder_state_dict": {"module.conv.weight": torch.ones(1)}}, file)
    >>> read_official(file)
    {'train_step': 7, 'encoder_state_dict': {'conv.weight': tensor([1.])}}
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist or is not a file: give the .pth file of the published network")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch guesses aloud about damaged files
            content = torch.load(path, map_location="cpu", weights_only=True)
    except DAMAGED as error:
        raise CheckpointError(_why_not(path, error)) from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        kind = type(content).__name__
        raise CheckpointError(
            f"{path} holds a {kind}, expected the dictionary of state dicts that the authors' code saves"
        )
    return {key: _stripped(value) if _is_state_dict(value) else value for key, value in content.items()}


def _why_not(path: Path, error: BaseException) -> str:
    message = str(error)
    for sign in ("GLOBAL ", "Unsupported class ", "Trying to call reduce for unrecognized function "):
        if isinstance(error, pickle.UnpicklingError) and sign in message:
            what = (
                message.split(sign, 1)[1].split("\n", 1)[0].split(" was not", 1)[0].split(" whose", 1)[0].strip(" .`'")
            )
            return (
                f"{path} asks Python to run or build {what[:80]!r}: refused, nothing was run. "
                "Published checkpoints hold tensors and plain values only"
            )
    if path.stat().st_size == 0:
        return f"{path} is empty: download it again"
    with path.open("rb") as file:
        start = file.read(2)
    if start == b"PK":
        return f"{path} is a cut or damaged PyTorch file: download it again"
    if start[:1] == b"\x80":
        return f"{path} is a cut or damaged file, or a pickle that PyTorch did not write: download it again"
    return f"{path} is not a PyTorch checkpoint (it starts with {start!r}): give the .pth file of the published network"


def _is_state_dict(value: object) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in value.items())
    )


def _stripped(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(PREFIX): tensor.detach() for name, tensor in state.items()}


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """Which published file this is: ``kbnet``, ``voiced``, ``fusionnet``, ``scaffnet``, ``pose`` or ``prototypes``."""

    network: str
    variant: str = ""  # kbnet: void or kitti; fusionnet, scaffnet: spp or nospp; pose: resnet18 or posenet
    detail: str = ""  # by what it was recognised


def detect(content: Mapping[str, Any]) -> PublishedFile | None:
    """Recognise a published file by its keys and shapes; None if it is none of them.

    >>> detect({"encoder_image_state_dict": {}, "encoder_depth_state_dict": {}, "decoder_state_dict": {}}).network
    'voiced'
    """
    if any(key.endswith("_token_pools_state_dict") for key in content):
        return PublishedFile("prototypes", detail="it has token pools")
    if "sparse_to_dense_pool_state_dict" in content:
        return _kbnet_layout(content["sparse_to_dense_pool_state_dict"])
    for network in ("fusionnet", "scaffnet"):
        mark = {"fusionnet": "fusionnet_decoder_state_dict", "scaffnet": "scaffnet_encoder_state_dict"}[network]
        if mark in content:
            pooled = "spatial_pyramid_pool_state_dict" in content
            return PublishedFile(network, "spp" if pooled else "nospp", f"it has {mark}")
    if "encoder_image_state_dict" in content:
        return PublishedFile("voiced", detail="it has encoder_image_state_dict")
    if "encoder_state_dict" in content and "decoder_state_dict" in content:
        return _pose_layout(content["encoder_state_dict"])
    return None


def _kbnet_layout(pool: Mapping[str, Tensor]) -> PublishedFile:
    first = pool.get("pool_convs.0.conv.weight")
    maps = first.shape[1] if first is not None and first.ndim == 4 else 0
    return PublishedFile("kbnet", {5: "void", 7: "kitti"}.get(maps, ""), f"{maps} pooling maps")


def _pose_layout(encoder: Mapping[str, Tensor]) -> PublishedFile | None:
    if any(name.startswith("blocks2.") for name in encoder):
        return PublishedFile("pose", "resnet18", "its encoder has ResNet blocks")
    if "conv7.conv.weight" in encoder:
        return PublishedFile("pose", "posenet", "its encoder has seven convolutions")
    return None


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """What became of every tensor of a file.  Names are ours; ``unexpected`` and ``ignored`` are the file's."""

    file: str
    loaded: tuple[str, ...] = ()
    parameters: int = 0  # numbers in the loaded tensors
    missing: tuple[str, ...] = ()  # kept at their start value; only counters of batch norm may be
    unexpected: tuple[str, ...] = ()  # parts of the file that this network does not have
    ignored: tuple[str, ...] = ()  # step number, optimiser states
    notes: tuple[str, ...] = field(default=())

    def with_note(self, note: str) -> "ConversionReport":
        return replace(self, notes=(*self.notes, note))

    def __str__(self) -> str:
        lines = [f"{self.file}: {len(self.loaded)} tensors, {self.parameters:,} numbers loaded"]
        lines += [
            f"  {title}: {'; '.join(getattr(self, title)) or 'none'}" for title in ("missing", "unexpected", "ignored")
        ]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def load_parts(module: nn.Module, content: Mapping[str, Any], keys: Mapping[str, str], file: str) -> ConversionReport:
    """Load the state dicts ``keys`` (theirs -> our submodule) into a module, strictly, or say the first difference."""
    expected = module.state_dict()
    tensors = {
        f"{ours}.{name}": tensor
        for theirs, ours in keys.items()
        if _is_state_dict(content.get(theirs))
        for name, tensor in content[theirs].items()
    }
    missing = [name for name in expected if name not in tensors]
    needed = [name for name in missing if not name.endswith("num_batches_tracked")]
    extra = [name for name in tensors if name not in expected]
    differing = [name for name in tensors if name in expected and tensors[name].shape != expected[name].shape]
    if needed or extra or differing:
        raise CheckpointError(f"{file} does not fit: {_difference(needed, extra, differing, tensors, expected)}")
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise CheckpointError(
                f"{file}: {name} has NaN or infinite values: its training diverged or the file is damaged"
            )
    module.load_state_dict({**expected, **tensors})
    others = [key for key in content if key not in keys]
    return ConversionReport(
        file=file,
        loaded=tuple(tensors),
        parameters=sum(t.numel() for t in tensors.values()),
        missing=tuple(missing),
        unexpected=tuple(key for key in others if _is_state_dict(content[key])),
        ignored=tuple(key for key in others if not _is_state_dict(content[key])),
    )


def _difference(
    missing: Sequence[str],
    extra: Sequence[str],
    differing: Sequence[str],
    tensors: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
) -> str:
    counts = f"{len(missing)} tensors missing, {len(extra)} unexpected, {len(differing)} of another shape; the first is"
    if differing:
        name = differing[0]
        return (
            f"{counts} {name}: shape {tuple(tensors[name].shape)} in the file, expected {tuple(expected[name].shape)}"
        )
    return f"{counts} {missing[0]} (missing)" if missing else f"{counts} {extra[0]} (unexpected)"
