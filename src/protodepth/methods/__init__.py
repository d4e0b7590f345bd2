"""Continual-learning methods, one file each.  Importing a file registers it."""

from protodepth.methods import finetune as finetune
from protodepth.methods import protodepth as protodepth
