"""What does not fit into the memory is refused before any of it is taken."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import tiny_model
from protodepth.cli.main import COMMANDS, run
from protodepth.data.example import write_example
from protodepth.errors import ConfigError
from protodepth.inference import memory
from protodepth.storage import space

ROOM = "worlds:room?size=32x48&train=6&val=2&test=3"
WIDE = "backbone_options={image_widths=[90000,90000,8,8,8]}"


def test_small_frames_are_not_measured_and_large_ones_by_their_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "free_memory", lambda: 1.5e9)
    monkeypatch.setattr(memory, "bytes_of_a_pixel", lambda model: 250.0)
    memory.check_size((1000, 4000))  # few pixels: nobody asks
    memory.check_size((1000, 4001), tiny_model())
    with pytest.raises(ConfigError, match=r"a frame of 1000x4001 needs about 4\.0 GB .* 1\.5 GB are free: take sma"):
        memory.check_size((1000, 4001))
    with pytest.raises(ConfigError, match=r"5 frames of 1000x1000 needs about 5\.0 GB .* take fewer or smaller ones"):
        memory.check_size((1000, 1000), frames=5)
    with pytest.raises(ConfigError, match=r"needs about 2\.0 GB"):
        memory.check_size((2000, 4000), tiny_model())


@pytest.mark.parametrize(
    "command",
    [
        "data example out --size 20000x20000 --frames 3",
        "data example out --size 16x999999 --frames 3",
        "data preview worlds:room?size=20000x20000 --out p.png",
        "data preview worlds:any?size=20000x20000 --out p.png",
        "data preview worlds:room?train=999999999 --out p.png",
        "speed --model worlds-tiny --size 20000x20000 --engine none",
        "export --model worlds-tiny --size 20000x20000 --out m.onnx",
        f"train --recipe worlds-tiny --data {ROOM} --out out --set {WIDE}",
        f"train --recipe worlds-tiny --data {ROOM} --out out --set schedule.batch_size=1000000",
        f"train --recipe worlds-tiny --data {ROOM} --out out --set schedule.workers=100000",  # took all memory
        "data prepare void . out --workers 100000",
    ],
)
def test_a_command_that_needs_more_than_the_machine_has_says_so_and_makes_nothing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(space, "free_memory", lambda: 1e9)
    assert run(command.split()) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("protodepth:")]
    assert len(said) == 1
    assert "of memory, and 1.0 GB are free" in said[0]
    written = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert written <= {"run.json", "recipe.toml"}  # what a training was asked for


@pytest.mark.parametrize(
    "command",
    [
        "speed --model worlds-tiny --threads 1000000 --size 64x64",  # this one crashed
        f"speed --model worlds-tiny --size {'9' * 5000}x64",
        "data preview worlds:room?size=²x48 --out p.png",
        f"data preview worlds:room?train={'9' * 5000} --out p.png",
        "data preview worlds:room --rows 1000000 --out p.png",
        "data prepare void . out --workers -1",
        f"train --recipe worlds-tiny --data {ROOM} --out out --set prototypes.image_size=1000000000",
        f"train --recipe worlds-tiny --data {ROOM} --out out --set prototypes.projection_rank=1000000000",
    ],
)
def test_a_number_that_no_machine_can_serve_is_one_sentence(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(command.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("protodepth: ")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_example_that_no_disk_holds_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "example", str(tmp_path / "e"), "--frames", "1000000000000"]) == 2
    assert "are free there: make room" in capsys.readouterr().err
    assert not (tmp_path / "e").exists()


def test_a_picture_whose_answer_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(space, "LARGE", 100)
    monkeypatch.setattr(space, "free_memory", lambda: 1e6)
    Image.fromarray(np.zeros((48, 64, 3), np.uint8)).save(tmp_path / "i.png")
    np.save(tmp_path / "s.npy", np.full((48, 64), 2, np.float32))
    argv = ["predict", "--model", "worlds-tiny", "--image", str(tmp_path / "i.png"), "--intrinsics", "50,50,32,24"]
    assert run([*argv, "--sparse", str(tmp_path / "s.npy"), "--out", str(tmp_path / "out"), "--force"]) == 2
    assert "a frame of 48x64 needs about 3 MB of memory" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["adapt", "evaluate", "train"])
def test_frames_of_a_dataset_whose_answer_does_not_fit_are_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_example(tmp_path / "rec", "room", frames=12, size=(32, 48))
    lines = {
        "adapt": "adapt --model worlds-tiny --data rec --name den --out out --steps 2 --force",
        "evaluate": "evaluate --model worlds-tiny --data rec --out out",
        "train": "train --recipe worlds-tiny --data rec --out out",
    }
    monkeypatch.setattr(space, "LARGE", 100)
    monkeypatch.setattr(space, "LEAST", 1e6)
    monkeypatch.setattr(memory, "bytes_of_a_pixel", lambda model: 1e6)
    monkeypatch.setattr(space, "free_memory", lambda: 1e9)
    assert run(lines[command].split()) == 2
    assert "a frame of 32x48 needs about 1.5 GB of memory, and 1.0 GB are free" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize("large", ["i.png", "s.png"])
def test_a_picture_whose_answer_does_not_fit_is_refused_before_it_is_decoded(
    large: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"i.png": (48, 64), "s.png": (48, 64), large: (2100, 2000)}
    Image.fromarray(np.zeros((*sizes["i.png"], 3), np.uint8)).save(tmp_path / "i.png")
    Image.fromarray(np.full(sizes["s.png"], 2000, np.uint16)).save(tmp_path / "s.png")
    whole = Image.Image.load

    def load(picture: Image.Image) -> object:
        assert picture.size == (64, 48)
        return whole(picture)

    monkeypatch.setattr(Image.Image, "load", load)
    monkeypatch.setattr(space, "free_memory", lambda: 1e9)
    argv = ["predict", "--model", "worlds-tiny", "--image", str(tmp_path / "i.png"), "--depth-unit", "mm"]
    argv += ["--sparse", str(tmp_path / "s.png"), "--intrinsics", "50,50,32,24", "--out", str(tmp_path / "out")]
    assert run(argv) == 2
    assert f"{large}: a frame of 2100x2000 needs about 4.2 GB of memory, and 1.0 GB" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")]
)
def test_memory_that_runs_out_after_all_is_one_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from protodepth.cli.doctor import Doctor

    def fail(self: Doctor) -> None:
        raise error

    monkeypatch.setattr(Doctor, "run", fail)
    assert COMMANDS["doctor"][1] == "Doctor"
    assert run(["doctor"]) == 2
    assert capsys.readouterr().err.startswith("protodepth: not enough memory: ")


def test_another_error_of_the_libraries_is_still_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from protodepth.cli.doctor import Doctor

    def fail(self: Doctor) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(Doctor, "run", fail)
    assert run(["doctor"]) == 1
    assert "internal error" in capsys.readouterr().err
