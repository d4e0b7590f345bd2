"""Continual-learning methods, one file each.  Importing a file registers it."""

from protodepth.methods import ancl as ancl
from protodepth.methods import cmp as cmp
from protodepth.methods import ewc as ewc
from protodepth.methods import finetune as finetune
from protodepth.methods import joint as joint
from protodepth.methods import l2p as l2p
from protodepth.methods import lwf as lwf
from protodepth.methods import protodepth as protodepth
from protodepth.methods import replay as replay
