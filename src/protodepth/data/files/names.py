"""Names of files: frames in the order of their numbers, and depth maps that belong to pictures of other names."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

_DIGITS = re.compile(r"(\d+)")


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key of file names in which frame 10 comes after frame 9.

    >>> sorted(["f10", "f9", "f1"], key=natural_key)
    ['f1', 'f9', 'f10']
    """
    return tuple((0, int(p), p) if p.isdigit() else (1, 0, p) for p in _DIGITS.split(name) if p)


def by_number(maps: Mapping[str, Path], pictures: Collection[str]) -> dict[str, Path]:
    """Depth maps under the names of their pictures, where they have names of their own: ``depth_0007`` is that of
    ``rgb_0007``.  Maps of which one has a picture's name, or most have no picture of their number, stay as they are.

    >>> by_number({"depth_7": Path("depth_7.png"), "depth_8": Path("depth_8.png")}, ["rgb_007", "rgb_008"])
    {'rgb_007': PosixPath('depth_7.png'), 'rgb_008': PosixPath('depth_8.png')}
    """
    if not maps or any(name in maps for name in pictures):
        return dict(maps)
    for last in (False, True):  # all numbers of a name; only its last one
        here, there = ({_numbers(name, last): name for name in names} for names in (pictures, maps))
        shared = [number for number in here if number and number in there]
        unique = len(here) == len(pictures) and len(there) == len(maps)
        if unique and 2 * len(shared) > len(pictures):
            joined = {here[number]: maps[there[number]] for number in shared}
            return {**joined, **{there[number]: maps[there[number]] for number in there if number not in here}}
    return dict(maps)


def _numbers(name: str, last: bool) -> tuple[int, ...]:
    runs = [int(digits) for digits in _DIGITS.findall(name)]
    return tuple(runs[-1:] if last else runs)
