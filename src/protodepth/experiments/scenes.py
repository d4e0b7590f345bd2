"""What a seed draws on the built-in worlds: training frames, test scenes, and which of three bases it starts from."""

from typing import Literal

Scenes = Literal["fresh", "fixed"]
BASES = 3  # of each network: a base takes as long as all methods of a seed together
TEST_SCENES = 128  # of each domain and seed


def base_number(seed: int) -> int:
    """Which base a seed starts from; number 0 is the one of fixed scenes.

    >>> [base_number(seed) for seed in (11, 12, 13, 14, 15)]
    [2, 0, 1, 2, 0]
    """
    return seed % BASES


def with_scenes(argument: str, seed: int, *, whole: bool = True) -> str:
    """The same world with scenes of its own; what is no world, or names its seed, stays.  ``whole``: with all test
    scenes, unless the argument says how many.

    >>> with_scenes("worlds:room?train=64", 11)
    'worlds:room?train=64&seed=11&test=128'
    >>> with_scenes("worlds:room?seed=3", 11, whole=False), with_scenes("kitti:/data", 11)
    ('worlds:room?seed=3', 'kitti:/data')
    """
    if not argument.startswith("worlds:"):
        return argument
    name, _, query = argument.partition("?")
    options = dict(part.split("=", 1) for part in query.split("&") if part)
    options.setdefault("seed", str(seed))
    if whole:
        options.setdefault("test", str(TEST_SCENES))
    return f"{name}?" + "&".join(f"{key}={value}" for key, value in options.items())
