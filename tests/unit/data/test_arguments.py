"""One grammar for data everywhere."""

from pathlib import Path

import pytest

from helpers.recordings import SHOTS, write_recording
from protodepth.data.arguments import open_domain, parse_argument
from protodepth.errors import ConfigError, DataError, UnknownNameError


def test_the_data_argument_grammar(tmp_path: Path) -> None:
    write_recording(tmp_path, SHOTS)
    assert parse_argument(str(tmp_path)) == ("recording", str(tmp_path))
    assert parse_argument("worlds:room") == ("worlds", "room")
    assert open_domain(str(tmp_path), depth_unit="mm").identity["dataset"] == "recording"
    with pytest.raises(UnknownNameError, match="kitti"):
        open_domain("kity:/data")
    with pytest.raises(DataError, match="does not exist"):
        open_domain(str(tmp_path / "nothing"))
    with pytest.raises(DataError, match="after the colon"):
        open_domain("kitti:")


def test_an_option_that_the_data_does_not_have_is_named() -> None:
    with pytest.raises(ConfigError, match="worlds data has no option 'colour'"):
        open_domain("worlds:room", colour=3)
