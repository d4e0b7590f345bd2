"""No command removes a domain that it was not told to remove: random sequences of commands over a few folders."""

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conftest import shake, tiny_model
from protodepth.cli.main import run
from protodepth.cli.options import DEFAULT_MODEL
from protodepth.data.frame import Frame
from protodepth.model import ProtoDepth
from protodepth.storage import folders
from protodepth.training.schedule import Schedule

PLACES = ("a", "b", "c", "c/domains/x", "a/domains/y")
NAMES = ("x", "y", "z")
Held = dict[tuple[str, str], str]  # (folder, domain) -> sha256 of its weights


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a bundled base; learning is replaced by drawing numbers, all else is as typed."""
    base = tiny_model()
    base.save_pretrained(tmp_path / "weights" / DEFAULT_MODEL)
    base.save_pretrained(tmp_path / "weights" / "other-base")
    monkeypatch.setattr(folders, "BUNDLED", tmp_path / "weights")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    count = iter(range(10**6))

    def learn(model: ProtoDepth, task: SimpleNamespace, *rest: object, **options: Any) -> object:
        model.add_domain(task.name)
        shake(model, task.name, next(count))
        return SimpleNamespace(helped=True, steps=1)

    def describe(model: ProtoDepth, data: object, name: str | None, **options: Any) -> str:
        chosen = name or "x"
        if chosen in model.domains:
            model.delete_domain(chosen)
        model.add_domain(chosen, base=True)
        return chosen

    frame = Frame(image=np.zeros((4, 6, 3), np.uint8), sparse_depth=np.ones((4, 6), np.float32), intrinsics=np.eye(3))
    parts = SimpleNamespace(learn=[frame])
    monkeypatch.setattr(
        "protodepth.training.task.prepare", lambda model, data, name, *rest: SimpleNamespace(name=name, parts=parts)
    )
    monkeypatch.setattr(
        "protodepth.training.adapt.make_plan", lambda *rest: SimpleNamespace(steps=1, schedule=Schedule())
    )
    monkeypatch.setattr("protodepth.training.adapt.carry_out", learn)
    monkeypatch.setattr("protodepth.training.domains.describe_base", describe)
    monkeypatch.setattr("protodepth.data.arguments.open_domain", lambda text: SimpleNamespace(train=[]))
    return tmp_path / "here"


def held(root: Path) -> Held:
    """Every domain of every model folder and of every parcel; a model's count only if its config.json lists them."""
    found: Held = {}
    for meta in root.rglob("meta.json"):
        where, name = meta.parent, json.loads(meta.read_text())["name"]
        model = where.parent.parent / "config.json"
        if where.parent.name == "domains" and model.exists():
            if where.name not in json.loads(model.read_text())["domains"]:
                continue
            where, name = model.parent, where.name
        weights = hashlib.sha256((meta.parent / "weights.safetensors").read_bytes()).hexdigest()
        found[str(where.relative_to(root)), name] = weights
    return found


def draw(dice: random.Random) -> list[str]:
    place, other, out = (dice.choice(PLACES) for _ in range(3))
    name, to = dice.choice(NAMES), dice.choice(NAMES)
    start = dice.choice([[], ["--model", DEFAULT_MODEL], ["--model", place], ["--model", "other-base"]])
    into = dice.choice([[], ["--out", out]])
    return dice.choice(
        [
            ["adapt", "--data", "rec", "--name", name, "--out", out, *start],
            ["adapt", "--data", "rec", "--name", name, "--out", out],
            ["domains", "export", "--model", place, "--name", name, "--out", out],
            ["domains", "import", "--model", place, "--folder", other, *into],
            ["domains", "import", "--model", DEFAULT_MODEL, "--folder", other, "--out", out],
            ["domains", "import", "--model", place, "--folder", other, "--name", to, *into],
            ["domains", "rename", "--model", place, "--name", name, "--to", to, *into],
            ["domains", "remove", "--model", place, "--name", name, *into],
            ["domains", "describe", "--model", place, "--data", "rec", "--name", name, *into],
        ]
    )


def told(argv: list[str], before: Held) -> tuple[Held, Held]:
    """What the command may take away, and what must be there instead."""
    first = next(n for n, word in enumerate(argv) if word.startswith("--"))
    options = dict(zip(argv[first::2], argv[first + 1 :: 2], strict=True))
    where = options.get("--out") or options.get("--model", "")
    key = (where, options.get("--name", ""))
    if argv[:2] not in (["domains", "remove"], ["domains", "rename"], ["domains", "describe"]) or key not in before:
        return {}, {}
    instead = {(where, options["--to"]): before[key]} if argv[1] == "rename" else {}
    return {key: before[key]}, instead


def play(root: Path, seed: int, length: int) -> tuple[int, int]:
    """One sequence; returns how many commands were done and how many were refused."""
    dice, codes = random.Random(seed), [0, 0]
    first = [
        f"adapt --data rec --name {name} --out {place}".split() for place, name in (("a", "x"), ("b", "x"), ("a", "z"))
    ]
    for argv in (*first, *(draw(dice) for _ in range(length))):
        before = held(root)
        code = run(argv)
        assert code in (0, 2), argv
        codes[code // 2] += 1
        after = held(root)
        gone, instead = told(argv, before) if code == 0 else ({}, {})
        must = {key: value for key, value in before.items() if key not in gone} | instead
        assert must.items() <= after.items(), f"seed {seed}: {' '.join(argv)} lost {set(must) - set(after)}"
    return codes[0], codes[1]


@pytest.mark.parametrize("seed", range(12))
def test_no_command_removes_a_domain_that_it_was_not_told_to_remove(world: Path, seed: int) -> None:
    done, refused = play(world, seed, 30)
    assert done >= 4
    assert refused >= 3


@pytest.mark.slow
def test_no_command_in_six_thousand_loses_a_domain(world: Path) -> None:
    for seed in range(100, 300):
        play(world, seed, 30)


@pytest.fixture
def call(world: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[int, str, str]]:
    def typed(text: str) -> tuple[int, str, str]:
        code = run(text.split())
        out, err = capsys.readouterr()
        return code, out, err

    return typed


def test_a_second_adapt_goes_on_with_the_model_in_its_out(call: Callable[[str], tuple[int, str, str]]) -> None:
    assert call("adapt --data rec --name warehouse --out m")[0] == 0
    code, out, _ = call("adapt --data rec --name corridor --out m")
    assert code == 0
    assert "m exists: corridor is added to its domains (warehouse)" in out
    assert ProtoDepth.from_pretrained("m").domains == ("warehouse", "corridor")


def test_an_out_that_holds_another_model_than_named_is_refused(call: Callable[[str], tuple[int, str, str]]) -> None:
    assert call("adapt --data rec --name warehouse --out m")[0] == 0
    assert call("adapt --data rec --name x --out other")[0] == 0
    assert call("domains export --model other --name x --out parcel")[0] == 0
    for text in (
        f"adapt --data rec --name corridor --model {DEFAULT_MODEL} --out m",
        "adapt --data rec --name corridor --model other --out m",
        f"domains import --model {DEFAULT_MODEL} --folder parcel --out m",
        "domains rename --model other --name x --to y --out m",
        "domains remove --model other --name x --out m",
        "domains describe --model other --data rec --name y --out m",
    ):
        code, _, err = call(text)
        assert code == 2, text
        assert "m holds another model" in err, text
        assert "warehouse" in err
        assert ProtoDepth.from_pretrained("m").domains == ("warehouse",)


def test_a_parcel_is_not_written_over_another_one(call: Callable[[str], tuple[int, str, str]]) -> None:
    for name in ("x", "y"):
        assert call(f"adapt --data rec --name {name} --out m")[0] == 0
    assert call("domains export --model m --name x --out p")[0] == 0
    assert call("domains export --model m --name x --out p")[0] == 0  # the same bits again
    code, _, err = call("domains export --model m --name y --out p")
    assert code == 2
    assert "p holds the domain 'x'" in err
    code, _, err = call("domains export --model m --name y --out m/domains/x")
    assert code == 2
    assert ProtoDepth.from_pretrained("m").domains == ("x", "y")
