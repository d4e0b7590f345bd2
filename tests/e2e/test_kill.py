"""SIGKILL at random moments: the next start goes on, ends with the same bits, and leaves nothing behind."""

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
BENCH = [
    *("bench", "outdoor", "--backbone", "lite", "--methods", "finetune,protodepth"),
    *("--size", "32x48", "--frames", "3", "--steps", "3", "--base-steps", "2"),
]
STRAY = re.compile(r"\..+\.[0-9a-f]{8}\.(tmp|old|stale)|.*\.lock|.*\.adapting")


def weights(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.safetensors"))}


def strays(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*") if STRAY.fullmatch(p.name)]


def kill_and_go_on(
    killer: Killer, first: list[str], again: list[str], whole: tuple[float, int], dice: random.Random
) -> int:
    """Kill a command at a moment of its run, or before one of its operations on the disk, and its successors too, until
    one ends; returns the number of kills.  ``whole``: seconds and operations of a run that nobody kills.
    """
    kills, argv, (seconds, operations) = 0, first, whole
    while kills < 6:
        if dice.random() < 0.5:
            code, _ = killer.run(argv, kill=dice.uniform(0, seconds))
        else:
            code, _ = killer.run(argv, kill_at=dice.randint(1, operations))
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
        whole = seconds, killer.operations()
        good, log = weights(folder / "whole" / "model"), (folder / "whole" / "log.jsonl").read_bytes()
        for n in range(tries):
            out = f"run{n}"
            again = [*TRAIN, "--out", out]
            # killed before it had written its claim, it is begun anew
            first, resume = again, [*again, "--resume"]
            kills += kill_and_go_on(killer, first, resume, whole, dice)
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
        whole = seconds, killer.operations()
        good = weights(folder / "whole")
        facts = json.loads((folder / "whole/domains/den/meta.json").read_text())["history"]
        for n in range(tries):
            argv = [*ADAPT, "--out", f"m{n}"]
            kills += kill_and_go_on(killer, argv, argv, whole, dice)
            assert weights(folder / f"m{n}") == good
            found = json.loads((folder / f"m{n}/domains/den/meta.json").read_text())["history"]
            assert {k: found[k] for k in ("steps", "kept_step")} == {k: facts[k] for k in ("steps", "kept_step")}
            assert strays(folder) == []
    return kills


def measured(folder: Path) -> dict[str, Any]:
    """What a bench found, without its clocks: every number of every cell, and its files by their checksums."""
    clocks = ("seconds", "training_seconds", "about", "resumed")
    found: dict[str, Any] = {}
    for file in sorted((folder / "cells").rglob("result.json")):
        stored = json.loads(file.read_text())
        made = {k: v for k, v in stored["files"].items() if k.endswith(".safetensors")}
        found[file.parent.name] = ({k: v for k, v in stored["result"].items() if k not in clocks}, made)
    return found


def attack_bench(folder: Path, tries: int, seed: int) -> int:
    dice, kills = random.Random(seed), 0
    with Killer(folder) as killer:
        code, seconds = killer.run([*BENCH, "--out", "whole"])
        assert code == 0, killer.said()
        whole, good = (seconds, killer.operations()), measured(folder / "whole")
        assert len(good) >= 3
        for n in range(tries):
            argv = [*BENCH, "--out", f"b{n}"]
            kills += kill_and_go_on(killer, argv, argv, whole, dice)
            assert measured(folder / f"b{n}") == good
            assert strays(folder) == []
    return kills


def test_a_killed_train_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    assert attack_train(tmp_path, 2, 1) >= 1


def test_a_killed_adapt_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    assert attack_adapt(tmp_path, 1, 3) >= 1


def test_a_killed_bench_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    assert attack_bench(tmp_path, 1, 4) >= 1


def until(kills: int, attack: Callable[[Path, int, int], int], folder: Path, tries: int) -> None:
    """Attack until so many kills are survived; PROTODEPTH_KILLS asks for fewer, on a machine without the time."""
    wanted, done, seed = int(os.environ.get("PROTODEPTH_KILLS", kills)), 0, 10
    while done < wanted:
        (folder / str(seed)).mkdir()
        done += attack(folder / str(seed), tries, seed)
        print(done, "kills", flush=True)
        seed += 1


@pytest.mark.slow
def test_a_hundred_kills_of_train(tmp_path: Path) -> None:
    until(100, attack_train, tmp_path, 5)


@pytest.mark.slow
def test_a_hundred_kills_of_adapt(tmp_path: Path) -> None:
    until(100, attack_adapt, tmp_path, 5)


@pytest.mark.slow
def test_fifty_kills_of_bench(tmp_path: Path) -> None:
    until(50, attack_bench, tmp_path, 3)
