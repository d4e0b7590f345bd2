"""protodepth: unsupervised continual depth completion with prototypes.

>>> import protodepth
>>> model = protodepth.ProtoDepth.from_pretrained("any-sensor")  # doctest: +SKIP
>>> p = model.predict(image, sparse_depth, intrinsics)  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from protodepth._version import __version__

if TYPE_CHECKING:
    from protodepth.backbones.base import Backbone as Backbone
    from protodepth.backbones.hooked import wrap as wrap
    from protodepth.data.arguments import open_domain as open_domain
    from protodepth.data.frame import Domain as Domain
    from protodepth.errors import ProtoDepthError as ProtoDepthError
    from protodepth.inference.stream import Stream as Stream
    from protodepth.methods.base import Method as Method
    from protodepth.model import ProtoDepth as ProtoDepth
    from protodepth.prototypes import PrototypeConfig as PrototypeConfig
    from protodepth.prototypes import PrototypeSet as PrototypeSet
    from protodepth.selection import Rule as Rule
    from protodepth.storage.official.convert import convert as convert
    from protodepth.training.adapt import adapt as adapt
    from protodepth.training.judging import evaluate as evaluate
    from protodepth.training.sequence import run_sequence as run_sequence
    from protodepth.types import (
        Batch as Batch,
    )
    from protodepth.types import (
        LatentSpec as LatentSpec,
    )
    from protodepth.types import (
        Modality as Modality,
    )
    from protodepth.types import (
        Prediction as Prediction,
    )

# Where each public name lives.  torch takes seconds to import, so nothing is imported before it is asked for.
_HOME = {
    "Backbone": "protodepth.backbones.base",
    "Batch": "protodepth.types",
    "Domain": "protodepth.data.frame",
    "LatentSpec": "protodepth.types",
    "Method": "protodepth.methods.base",
    "Modality": "protodepth.types",
    "Prediction": "protodepth.types",
    "ProtoDepth": "protodepth.model",
    "ProtoDepthError": "protodepth.errors",
    "PrototypeConfig": "protodepth.prototypes",
    "PrototypeSet": "protodepth.prototypes",
    "Rule": "protodepth.selection",
    "Stream": "protodepth.inference.stream",
    "adapt": "protodepth.training.adapt",
    "convert": "protodepth.storage.official.convert",
    "evaluate": "protodepth.training.judging",
    "open_domain": "protodepth.data.arguments",
    "run_sequence": "protodepth.training.sequence",
    "wrap": "protodepth.backbones.hooked",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'protodepth' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
