"""Finetuned: the whole network learns each new domain, nothing protects the old ones.  And Pretrained:
nothing learns.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from torch import nn

from protodepth.losses import Objective
from protodepth.methods.base import Method, methods
from protodepth.model import ProtoDepth


@methods.register("finetune")
class Finetune(Method):
    """All weights of the backbone are trained; the base class's hooks are exactly this."""

    name: ClassVar[str] = "finetune"

    def __init__(self, model: ProtoDepth, objective: Objective, config: Any = None) -> None:
        super().__init__(model, objective, config)
        self.backbone.unfreeze()


@methods.register("pretrained")
class Pretrained(Method):
    """The network as it was after D_1: the lower bound."""

    name: ClassVar[str] = "pretrained"
    trains = False

    def trainable_parameters(self) -> Iterator[nn.Parameter]:
        return iter(())
