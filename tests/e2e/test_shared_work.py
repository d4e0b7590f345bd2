"""Bench cells, prepared data and predictions made by two processes, or by two workers of a local Ray, are those of one
process to the bit.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from helpers.data_scene import walk
from helpers.dataset_writers import write_vkitti2
from protodepth import cluster
from protodepth.cli import main
from protodepth.data.files.images import image_size
from protodepth.errors import ConfigError, DataError, ProcessLost

# what no two runs share: times, and hashes of what has times in it; weights are compared by their bytes
TIMES = ("wall_seconds", "seconds", "sha256", "training_seconds", "about", "sealed", "files")


@pytest.fixture(scope="module", params=["here", "ray"])
def on(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """One Ray for the whole file: it takes seconds to start."""
    with ExitStack() as stack:
        if request.param == "ray":
            pytest.importorskip("ray", reason="Ray is not installed: pip install 'protodepth[cluster]'")
            stack.enter_context(cluster.pool("ray", 2))
        yield ["--on", request.param, "--workers", "2"]


def run(*words: object) -> None:
    assert main.run([str(word) for word in words]) == 0


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in TIMES}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def contents(folder: Path, pattern: str) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob(pattern)}


def test_cells_of_a_bench(tmp_path: Path, on: list[str]) -> None:
    small = ["--size", "32x48", "--frames", "3", "--steps", "2", "--base-steps", "1", "--sequence", "outdoor"]
    words = ["outdoor", "classical", "--backbone", "lite", "--methods", "protodepth", *small]
    stored = {}
    for name, where in (("one", []), ("shared", on)):
        run("bench", *words, "--out", tmp_path / name, *where)
        files = sorted((tmp_path / name / "cells").rglob("result.json"))
        stored[name] = {f.parent.name: timeless(json.loads(f.read_text())) for f in files}
        assert (tmp_path / name / "report.html").is_file()
    assert len(stored["one"]) > 5
    assert "protodepth" in {cell["label"].get("method") for cell in stored["one"].values()}
    assert stored["shared"] == stored["one"]
    assert contents(tmp_path / "shared" / "cells", "*.safetensors") == contents(
        tmp_path / "one" / "cells", "*.safetensors"
    )


def test_prepared_data(tmp_path: Path, on: list[str]) -> None:
    write_vkitti2(tmp_path / "raw", walk(12, size=(32, 48), world="street", step=0.8), "Scene01", "rain")
    options = ["--set", "conditions=rain", "sampler=uniform:90", "val_share=0.0"]
    words = ["data", "prepare", "vkitti", tmp_path / "raw"]
    run(*words, tmp_path / "one", "--workers", "0", *options)
    run(*words, tmp_path / "shared", *on, *options)
    assert contents(tmp_path / "one", "*.png")
    for pattern in ("*.png", "*.jsonl", "manifest.json"):
        assert contents(tmp_path / "shared", pattern) == contents(tmp_path / "one", pattern)


def test_predictions_of_a_recording_with_a_bad_frame(tmp_path: Path, on: list[str]) -> None:
    run("data", "example", tmp_path / "raw", "--frames", "21", "--size", "32x48")
    sorted((tmp_path / "raw" / "sparse").iterdir())[5].write_bytes(b"damaged")
    folders = ["--image", tmp_path / "raw" / "image", "--sparse", tmp_path / "raw" / "sparse"]
    camera = ["--intrinsics", tmp_path / "raw" / "intrinsics.txt", "--depth-unit", "kitti"]
    words = ["predict", *folders, *camera, "--batch-size", "2", "--format", "npy"]
    lines = {}
    for name, where in (("one", []), ("shared", on)):
        assert main.run([str(w) for w in (*words, "--out", tmp_path / name, *where)]) == 2  # one frame is bad
        text = (tmp_path / name / "predictions.jsonl").read_text()
        lines[name] = [timeless(json.loads(line)) for line in text.splitlines()]
    assert len(lines["one"]) == 21
    assert sum("error" in line for line in lines["one"]) == 1
    assert lines["shared"] == lines["one"]
    for pattern in ("*.npy", "*.png", "*.ply"):
        assert contents(tmp_path / "shared", pattern) == contents(tmp_path / "one", pattern)


def test_depth_that_cannot_be_right_stops_before_anything_is_written(tmp_path: Path, on: list[str], capsys) -> None:
    run("data", "example", tmp_path / "raw", "--frames", "3", "--size", "32x48")
    words = [
        "predict",
        "--model",
        "worlds-tiny",
        "--data",
        tmp_path / "raw",
        "--depth-unit",
        "m",
        "--out",
        tmp_path / "out",
    ]
    assert main.run([str(w) for w in (*words, *on)]) == 2
    assert "--depth-unit" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_error_of_a_worker_of_ray_comes_without_rays_trace_and_another_disk_is_said(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'protodepth[cluster]'")
    with cluster.pool("ray", 2) as executor:
        with pytest.raises(DataError, match=r"^\S+a\.png cannot be opened as a picture") as caught:
            list(cluster.in_order(executor, image_size, [tmp_path / "a.png"]))
        assert "ray" not in str(caught.value).replace(str(tmp_path), "")
        with pytest.raises(ProcessLost, match=r"No module named .*does its machine have protodepth"):
            list(cluster.in_order(executor, only_here, [1]))
    with (
        cluster.pool("ray", 2, seen=tmp_path / "not there") as executor,
        pytest.raises(ConfigError, match=r"does not see .*not there: give an --out on a disk that all machines have"),
    ):
        list(cluster.in_order(executor, image_size, [tmp_path / "a.png"]))


def only_here(number: int) -> int:
    """This file is no module that a worker could import."""
    return number
