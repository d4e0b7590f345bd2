"""Names of files: which depth map belongs to which picture."""

from pathlib import Path

import pytest

from protodepth.data.files.names import by_number


@pytest.mark.parametrize(
    ("pictures", "maps", "pairs"),
    [
        (["rgb_0", "rgb_1"], ["depth_0", "depth_1"], {"rgb_0": "depth_0", "rgb_1": "depth_1"}),
        (["cam0_7", "cam0_8"], ["d_8", "d_7"], {"cam0_7": "d_7", "cam0_8": "d_8"}),  # by the last number alone
        (["7", "8"], ["8", "9"], {"8": "8", "9": "9"}),  # names that agree are believed
        (["10.17", "10.21", "10.25"], ["10.19", "10.23", "10.25b"], {n: n for n in ("10.19", "10.23", "10.25b")}),
        (["a1_b1", "a1_b2"], ["x1", "y1"], {"x1": "x1", "y1": "y1"}),  # one number twice
        (["a", "b"], ["c", "d"], {"c": "c", "d": "d"}),
        (["a_1", "a_2", "a_3"], ["d_1", "d_2", "d_9"], {"a_1": "d_1", "a_2": "d_2", "d_9": "d_9"}),
    ],
)
def test_maps_of_other_names_belong_to_the_pictures_of_their_numbers(
    pictures: list[str], maps: list[str], pairs: dict[str, str]
) -> None:
    joined = by_number({name: Path(name) for name in maps}, pictures)
    assert {name: str(path) for name, path in joined.items()} == pairs
