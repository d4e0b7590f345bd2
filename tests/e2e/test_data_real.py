"""Three real recordings (not part of the repository): check, preview, and a few steps of adapting run on them."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from conftest import tiny_model
from protodepth.data.check import check
from protodepth.data.files.images import image_size
from protodepth.data.preview import preview, warped_neighbour
from protodepth.data.recording.open import load_recording
from protodepth.training.adapt import AdaptConfig, adapt
from protodepth.training.schedule import Schedule

REAL = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "real"
TOML = {
    "sevenscenes": 'depth_unit = "mm"\nsample = "harris:800"\n',
    "hololens": 'depth_unit = "mm"\nsample = "harris:500"\n',
    "kitti_raw": 'sparse = "depth"\ndepth_unit = "kitti"\nposes = "poses_estimated.txt"\nwithhold = 0.2\nfps = 10\n',
}
UNIT = {"sevenscenes": "mm", "hololens": "mm", "kitti_raw": "kitti"}


def copied(name: str, to: Path, frames: int = 24) -> Path:
    """A writable copy of the first frames with a recording.toml."""
    source = REAL / name
    if not source.is_dir():
        pytest.skip(f"the real recordings are not at {REAL}")
    for folder in ("image", "depth"):
        (to / folder).mkdir(parents=True)
        for path in sorted((source / folder).iterdir())[:frames]:
            shutil.copyfile(path, to / folder / path.name)
    poses = next(source.glob("poses*.txt"))
    (to / poses.name).write_text("".join(poses.read_text().splitlines(keepends=True)[:frames]))
    shutil.copyfile(source / "intrinsics.txt", to / "intrinsics.txt")
    (to / "recording.toml").write_text(TOML[name])
    return to


@pytest.mark.parametrize("name", list(TOML))
def test_a_real_recording_passes_the_check_and_its_neighbours_warp(name: str, tmp_path: Path) -> None:
    folder = copied(name, tmp_path / name)
    report = check(folder)
    assert report.ok, report.text()
    domain = load_recording(folder)
    frame = domain.train[len(domain.train) // 2]
    warped = warped_neighbour(frame)
    assert warped is not None
    known = (frame.sparse_depth > 0) & (warped.sum(-1) > 0)
    errors = [
        np.abs(frame.image.astype(int) - x.astype(int)).mean(-1)[known].mean() for x in (warped, frame.neighbours[0])
    ]
    limit = 0.97 if name == "kitti_raw" else 0.9  # on the motorway most of what is seen drives along
    assert errors[0] < limit * errors[1], "warping by pose and depth must beat the picture left where it is"
    sheet = preview(folder, tmp_path / "sheet.png", rows=1)
    assert image_size(sheet)[1] > 800


@pytest.mark.parametrize("name", list(TOML))
def test_the_unit_of_a_real_recording_is_found_without_being_told(name: str, tmp_path: Path) -> None:
    folder = copied(name, tmp_path / name)
    text = (folder / "recording.toml").read_text()
    (folder / "recording.toml").write_text("\n".join(line for line in text.splitlines() if "depth_unit" not in line))
    assert load_recording(folder).identity["unit"] == UNIT[name]


def test_adapting_runs_on_a_real_recording_and_leaves_the_base_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protodepth.training.watch.CASES", 4)  # judged by few frames: what is asked is whether it runs
    folder = copied("hololens", tmp_path / "hololens")
    model = tiny_model()
    model.add_domain("room", base=True)
    frame = load_recording(folder).test[0]
    before = model.predict(frame.image, frame.sparse_depth, frame.intrinsics, domain="base").depth
    result = adapt(
        model, folder, name="office", config=AdaptConfig(schedule=Schedule(steps=3, batch_size=2, rate=1e-2))
    )
    assert result.steps == 3
    assert np.isfinite(result.after)
    after = model.predict(frame.image, frame.sparse_depth, frame.intrinsics, domain="base").depth
    assert np.array_equal(before, after)
