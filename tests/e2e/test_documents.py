"""Every command that a document shows is run by a test, or a reason is given here;
all of them have options that exist.
"""

import contextlib
import io
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro

from conftest import tiny_model
from helpers.documents import DOCUMENTS, ROOT, blocks, commands, scripts, spoken
from protodepth.cli.main import COMMANDS, run, split
from protodepth.data.worlds.worlds import world
from protodepth.methods.statistics import describe

RUN_BY = {  # document -> the test file that runs all its commands
    "README.md": "tests/e2e/test_readme.py",
    "docs/checkpoints.md": "tests/e2e/test_checkpoint_docs.py",
    "docs/choosing.md": "tests/e2e/test_documents.py",
    "docs/export.md": "tests/unit/inference/engines/test_export.py",
    "docs/own_data.md": "tests/e2e/test_data_docs.py",
}
DATASET = "needs a dataset of the paper; tests/unit/data/datasets run the readers on files of its layout"
LONG = "trains for hours, or needs datasets of the paper; tests/e2e/test_bench.py runs it on tiny worlds"
NOT_RUN = {  # start of a command of the other documents -> why it is not run as written
    "data prepare": DATASET,
    "data check void_1500": DATASET,
    "data preview void_1500": DATASET,
    "data check lists:lists.toml": DATASET,
    "bench indoor": LONG,
    "speed": LONG,
    "bench outdoor": LONG,
    "bench mixed": LONG,
    "bench zero-shot": LONG,
    "bench set-sizes-indoor": LONG,
    "bench joint": LONG,
    "bench training-time": LONG,
    "data preview worlds:any": "draws for a minute; tests/unit/data/worlds/test_anywhere.py opens that domain",
    "train --recipe any-sensor": "trains for hours; tests/unit/training/test_drawn.py runs the loop",
    "predict --data my_recording --out depth": "needs that recording; tests/e2e/test_shared_work.py shares another one",
    "bench real": "needs recordings and adapts for minutes; tests/e2e/test_bench_real.py runs it on drawn ones",
    "bench foundation": "needs the maps of an outside model; tests/e2e/test_bench.py runs it with drawn ones",
    "adapt --data rosbag:": "needs a bag; tests/unit/data/datasets/test_rosbag.py reads one",
    "train --recipe paper-indoor": LONG,
    "train --recipe outdoor": "trains for long in several processes; tests/e2e/test_torchrun.py does so with few steps",
    "evaluate --model runs/outdoor": "needs the model of the line before; tests/e2e/test_torchrun.py evaluates one",
}
HERE = {"docs/reproducing.md": ("bench list", "bench all --dry-run")}  # commands of other documents that are run below


def parse(words: list[str]) -> Any:
    name, rest = split(words)
    assert name is not None, f"no command {' '.join(words[:2])}"
    module, kind, _ = COMMANDS[name]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            return tyro.cli(getattr(import_module(module), kind), args=rest)
        except SystemExit:
            pytest.fail(f"protodepth {' '.join(words)}\n{said.getvalue()}")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_can_be_parsed(document: str):
    for words in commands(document):
        parse(words)
    for text in spoken(document):
        name, rest = split(text.split())
        assert name is not None or text.split()[0] in {c.split()[0] for c in COMMANDS}, f"no command {text!r}"
        if name is not None:
            module, kind, _ = COMMANDS[name]
            known = {f"--{f.name.replace('_', '-')}" for f in fields(getattr(import_module(module), kind))}
            assert {word for word in rest if word.startswith("--")} <= known, text


def test_every_command_is_run_or_has_a_reason():
    for document in DOCUMENTS:
        if document in RUN_BY:
            name = Path(document).name if document != "README.md" else "README"
            assert name in (ROOT / RUN_BY[document]).read_text()
        else:
            starts = (*NOT_RUN, *HERE.get(document, ()))
            missing = [" ".join(w) for w in commands(document) if not " ".join(w).startswith(starts)]
            assert missing == [], document


def test_the_test_of_own_data_runs_all_its_commands():
    assert len(commands("docs/own_data.md")) == 6  # it runs the example and the five commands behind the mark


def test_no_reason_is_left_over():
    shown = [" ".join(words) for document in DOCUMENTS if document not in RUN_BY for words in commands(document)]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in shown)] == []


def test_scripts_exist_and_know_their_options():
    for file, *arguments in (script for document in DOCUMENTS for script in scripts(document)):
        source = (ROOT / file).read_text()
        assert [a for a in arguments if a.startswith("--") and f'"{a}"' not in source] == [], file


def test_the_commands_on_choosing_and_reproducing_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["data", "example", "my_recording", "--world", "room", "--frames", "6", "--size", "32x48"]) == 0
    model = tiny_model()
    model.add_domain("room", base=True)
    model.save_pretrained("tiny")
    assert (
        run(["domains", "describe", "--model", "tiny", "--data", "worlds:room?size=32x48&train=24&val=20&test=1"]) == 0
    )
    for words in commands("docs/choosing.md"):
        assert run([*words, "--model", "tiny"]) == 0, capsys.readouterr().err
    assert (tmp_path / "out" / "predictions.jsonl").exists()
    for words in commands("docs/reproducing.md"):
        if " ".join(words).startswith(HERE["docs/reproducing.md"]):
            assert run(words) == 0, capsys.readouterr().err


def test_the_python_on_choosing_and_own_data_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["data", "example", "my_recording", "--world", "room", "--frames", "12", "--size", "32x48"]) == 0
    points = np.zeros((32, 48), np.float32)
    points[::4, ::4] = 2.0

    data = world("room", size=(32, 48), train=24, val=20, test=1)
    for name in model.domains:
        describe(model, name, data.train, data.val)
    space: dict[str, Any] = {
        "model": model,
        "image": np.zeros((32, 48, 3), np.uint8),
        "sparse_depth": points,
        "intrinsics": (40, 40, 24, 16),
    }
    for document in ("docs/choosing.md", "docs/own_data.md"):
        for block in blocks(document, "python"):
            exec(compile(block, document, "exec"), space)
    assert space["p"].distance.keys() == set(model.domains)
    assert space["frame"].image.shape == (32, 48, 3)
    assert space["result"].mean["mae"] > 0
