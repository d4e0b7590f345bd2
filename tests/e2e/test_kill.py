"""SIGKILL at random moments: the next start goes on, ends with the same bits, and leaves nothing behind.

Compared is every file of an output folder: weights, optimiser, matrix, log, counts and what is said of frames that
cannot be read; only clocks and what is drawn from them may differ.
"""

import json
import math
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.killing import Killer
from protodepth import config
from protodepth.data.example import write_example
from protodepth.training.recipes import SequenceRecipe
from protodepth.training.schedule import Schedule

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
METHOD = ["train", "--recipe", "sequence.toml", "--method", "protodepth"]
CLOCKS = {"seconds", "wall_seconds", "training_seconds", "when", "about", "resumed", "command", "files", "costs"}
DATED = {"README.md", "sealed"}  # checksums of what holds clocks
STRAY = re.compile(r".+\.[0-9a-f]{8}\.(tmp|old|stale)|.*\.lock|lock|.*\.adapting")


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(v) for key, v in value.items() if key not in CLOCKS | DATED}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def contents(folder: Path) -> dict[str, Any]:
    """Every file of a folder: tensors and logs by their bytes, JSON without its clocks, pages and pictures by name."""
    found: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not STRAY.fullmatch(p.name)):
        name = str(path.relative_to(folder))
        if path.suffix in (".safetensors", ".jsonl", ".toml", ".npz"):
            found[name] = path.read_bytes()
        else:
            found[name] = timeless(json.loads(path.read_text())) if path.suffix == ".json" else ""
    return found


def write_broken_recording(folder: Path, frames: int) -> None:
    """A recording with a picture that says its size and cannot be decoded: it is counted, once."""
    write_example(folder, "room", frames=frames, size=(32, 48))
    frame = sorted((folder / "image").iterdir())[4]
    data = bytearray(frame.read_bytes())
    data[len(data) // 2] ^= 0xFF
    frame.write_bytes(data)
    with (folder / "recording.toml").open("a") as file:
        file.write("stride = 1\ngap = 2\n")


def strays(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*") if STRAY.fullmatch(p.name)]


def kill_and_go_on(
    killer: Killer, first: list[str], again: list[str], whole: tuple[float, int], dice: random.Random, most: int
) -> int:
    """Kill a command at a moment of its run, or before one of its operations on the disk, and its successors too, until
    one ends; returns the number of kills.  ``whole``: seconds and operations of a run that nobody kills; the run after
    ``most`` kills is let end.
    """
    kills, argv, (seconds, operations) = 0, first, whole
    while kills < most:
        share = 1 / (1 + kills)  # the first kill is anywhere in the run, the next ones soon after it has gone on
        if dice.random() < 0.5:
            code, _ = killer.run(argv, kill=dice.uniform(0, share * seconds))
        else:
            code, _ = killer.run(argv, kill_at=dice.randint(1, math.ceil(share * operations)))
        if code == 0:
            return kills
        assert code == -9, killer.said()[-2000:]
        kills += 1
        argv = again
    code, _ = killer.run(again)
    assert code == 0, killer.said()[-2000:]
    return kills


def attack(killer: Killer, command: list[str], again: tuple[str, ...], tries: int, seed: int, most: int) -> int:
    """Kill a command and its successors ``tries`` times over, each in a folder of its own; the number of kills."""
    dice, kills, folder = random.Random(seed), 0, killer.folder
    code, seconds = killer.run([*command, "--out", "whole"])
    assert code == 0, killer.said()
    whole, good = (seconds, killer.operations()), contents(folder / "whole")
    for n in range(tries):
        first = [*command, "--out", f"out{n}"]
        kills += kill_and_go_on(killer, first, [*first, *again], whole, dice, most)
        seen = contents(folder / f"out{n}")
        assert seen.keys() == good.keys()
        assert [name for name in good if seen[name] != good[name]] == []
        assert strays(folder) == []
    return kills


def attack_train(folder: Path, tries: int, seed: int, most: int = 6) -> int:
    with Killer(folder) as killer:
        return attack(killer, TRAIN, ("--resume",), tries, seed, most)


def attack_method(folder: Path, tries: int, seed: int, most: int = 6) -> int:
    """A method on a sequence: also its matrix, curve and counts."""
    write_broken_recording(folder / "rec", 34)
    with Killer(folder) as killer:
        code, _ = killer.run([*TRAIN, "--set", "schedule.steps=4", "--out", "base"])
        assert code == 0, killer.said()
        recipe = SequenceRecipe(
            name="two",
            start="base/model",
            domains=(ROOM, "rec"),
            schedule=Schedule(steps=50, batch_size=1, save_every=4),
            curve_every=20,
        )
        config.write(recipe, folder / "sequence.toml")
        kills = attack(killer, METHOD, ("--resume",), tries, seed, most)
    results = json.loads((folder / "whole" / "results.json").read_text())
    assert len(results["bad_frames"]["protodepth"]["rec train"]) == 3  # its own frame and its neighbours'
    return kills


def attack_adapt(folder: Path, tries: int, seed: int, most: int = 6) -> int:
    write_broken_recording(folder / "rec", 40)
    with Killer(folder) as killer:
        code, _ = killer.run([*TRAIN, "--set", "schedule.steps=4", "--out", "base"])
        assert code == 0, killer.said()
        kills = attack(killer, ADAPT, (), tries, seed, most)
    meta = json.loads((folder / "whole" / "domains" / "den" / "meta.json").read_text())
    assert len(meta["history"]["bad_frames"]) > 0
    return kills


def attack_bench(folder: Path, tries: int, seed: int, most: int = 6) -> int:
    with Killer(folder) as killer:
        kills = attack(killer, BENCH, (), tries, seed, most)
    assert len(list((folder / "whole" / "cells").rglob("result.json"))) >= 3
    return kills


def test_a_killed_train_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    assert attack_train(tmp_path, 1, 1, 2) >= 1


def test_a_killed_adapt_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    assert attack_adapt(tmp_path, 1, 3, 2) >= 1


def test_a_killed_bench_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    assert attack_bench(tmp_path, 1, 4, 2) >= 1


def until(kills: int, attack: Callable[[Path, int, int], int], folder: Path, tries: int) -> None:
    """Attack until so many kills are survived; PROTODEPTH_KILLS asks for fewer, on a machine without the time."""
    wanted, done, seed = int(os.environ.get("PROTODEPTH_KILLS", kills)), 0, 10
    while done < wanted:
        (folder / str(seed)).mkdir()
        done += attack(folder / str(seed), tries, seed)
        print(done, "kills", flush=True)
        seed += 1


@pytest.mark.slow
def test_fifty_kills_of_train(tmp_path: Path) -> None:
    until(50, attack_train, tmp_path, 5)


@pytest.mark.slow
def test_fifty_kills_of_train_with_a_method(tmp_path: Path) -> None:
    until(50, attack_method, tmp_path, 5)


@pytest.mark.slow
def test_a_hundred_kills_of_adapt(tmp_path: Path) -> None:
    until(100, attack_adapt, tmp_path, 5)


@pytest.mark.slow
def test_fifty_kills_of_bench(tmp_path: Path) -> None:
    until(50, attack_bench, tmp_path, 3)
