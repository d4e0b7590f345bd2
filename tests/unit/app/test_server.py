"""The page is not opened where it could not be."""

import pytest

from conftest import tiny_model
from protodepth.app.server import running
from protodepth.errors import ConfigError


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match=rf"port {port}: expected a number from 1"), running(tiny_model(), port=port):
        pass
