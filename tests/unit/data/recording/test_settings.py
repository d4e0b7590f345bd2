"""A wrong recording.toml names file and field."""

from pathlib import Path

import pytest

from helpers.recordings import SHOTS, write_recording
from protodepth.data.recording.open import load_recording
from protodepth.errors import DataError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('depth_unit = "inch"', "recording.toml: 'depth_unit'"),
        ("strides = 3", r"recording.toml: unknown field 'strides'; did you mean stride\?"),
        ("stride = 0", "'stride'"),
        ("stride =", "not valid TOML"),
    ],
)
def test_a_wrong_recording_toml_names_file_and_field(tmp_path: Path, text: str, message: str) -> None:
    write_recording(tmp_path, SHOTS[:4], toml=text)
    with pytest.raises(DataError, match=message):
        load_recording(tmp_path)
