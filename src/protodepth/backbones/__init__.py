from protodepth.backbones import kbnet as kbnet
