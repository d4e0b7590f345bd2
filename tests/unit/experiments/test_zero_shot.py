"""An unseen domain is unseen."""

import pytest

from helpers.bench_cells import change
from protodepth.errors import ConfigError
from protodepth.experiments import (
    bench,
)


def test_an_unseen_world_that_a_part_of_the_network_has_seen_is_refused():
    with pytest.raises(ConfigError, match="garden"):
        bench.plan(["zero-shot"], change(backbones=("fusionnet",)))
