"""SIGKILL at random moments: the next start goes on, ends with the same bits, and leaves nothing behind."""

import json
import random
import re
from pathlib import Path

import pytest

from helpers.killing import Killer
from protodepth.data.example import write_example

ROOM = "worlds:room?size=32x48&train=6&val=2&test=3"
TRAIN = [
    *("train", "--recipe", "worlds-tiny", "--data", ROOM, "--set", "schedule.steps=50"),
    *("--set", "schedule.save_every=4"),
    *("--set", "backbone_options={image_widths=[4,4,6,6,8],depth_widths=[2,2,4,4,4]}"),
]
ADAPT = ["adapt", "--data", "rec", "--name", "den", "--model", "base", "--steps", "6", "--force"]
STRAY = re.compile(r"\..+\.[0-9a-f]{8}\.(tmp|old|stale)|.*\.lock|.*\.adapting")


def weights(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.safetensors"))}


def strays(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*") if STRAY.fullmatch(p.name)]


def kill_and_go_on(killer: Killer, first: list[str], again: list[str], seconds: float, dice: random.Random) -> int:
    """Kill a command at a moment of its run, and its successors too, until one ends; returns the number of kills."""
    kills, argv = 0, first
    while kills < 6:
        code, _ = killer.run(argv, kill=dice.uniform(0, seconds))
        if code == 0:
            return kills
        assert code == -9, killer.said()[-2000:]
        kills += 1
        argv = again
    code, _ = killer.run(again)
    assert code == 0, killer.said()[-2000:]
    return kills


def attack_train(folder: Path, tries: int, seed: int) -> int:
    dice, kills = random.Random(seed), 0
    with Killer(folder) as killer:
        code, seconds = killer.run([*TRAIN, "--out", "whole"])
        assert code == 0, killer.said()
        good, log = weights(folder / "whole" / "model"), (folder / "whole" / "log.jsonl").read_bytes()
        for n in range(tries):
            out = f"run{n}"
            again = [*TRAIN, "--out", out]
            # killed before it had written its claim, it is begun anew
            first, resume = again, [*again, "--resume"]
            kills += kill_and_go_on(killer, first, resume, seconds, dice)
            assert weights(folder / out / "model") == good
            assert (folder / out / "log.jsonl").read_bytes() == log
            assert strays(folder) == []
    return kills


def attack_adapt(folder: Path, tries: int, seed: int) -> int:
    write_example(folder / "rec", "room", frames=24, size=(32, 48))
    dice, kills = random.Random(seed), 0
    with Killer(folder) as killer:
        code, _ = killer.run([*TRAIN, "--set", "schedule.steps=4", "--out", "base"])
        assert code == 0, killer.said()
        code, seconds = killer.run([*ADAPT, "--out", "whole"])
        assert code == 0, killer.said()
        good = weights(folder / "whole")
        facts = json.loads((folder / "whole/domains/den/meta.json").read_text())["history"]
        for n in range(tries):
            argv = [*ADAPT, "--out", f"m{n}"]
            kills += kill_and_go_on(killer, argv, argv, seconds, dice)
            assert weights(folder / f"m{n}") == good
            found = json.loads((folder / f"m{n}/domains/den/meta.json").read_text())["history"]
            assert {k: found[k] for k in ("steps", "kept_step")} == {k: facts[k] for k in ("steps", "kept_step")}
            assert strays(folder) == []
    return kills


def test_a_killed_train_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    assert attack_train(tmp_path, 2, 1) >= 1


def test_a_killed_adapt_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    assert attack_adapt(tmp_path, 1, 3) >= 1


@pytest.mark.slow
def test_a_hundred_kills_of_train(tmp_path: Path) -> None:
    kills, seed = 0, 10
    while kills < 100:
        (tmp_path / str(seed)).mkdir()
        kills += attack_train(tmp_path / str(seed), 10, seed)
        seed += 1
    print(kills, "kills")


@pytest.mark.slow
def test_a_hundred_kills_of_adapt(tmp_path: Path) -> None:
    kills, seed = 0, 10
    while kills < 100:
        (tmp_path / str(seed)).mkdir()
        kills += attack_adapt(tmp_path / str(seed), 10, seed)
        seed += 1
    print(kills, "kills")
