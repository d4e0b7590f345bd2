from protodepth.backbones import fusionnet as fusionnet
from protodepth.backbones import kbnet as kbnet
from protodepth.backbones import lite as lite
from protodepth.backbones import scaffnet as scaffnet
from protodepth.backbones import scalefree as scalefree
from protodepth.backbones import uformer as uformer
from protodepth.backbones import voiced as voiced
