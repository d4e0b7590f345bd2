"""An Azure Kinect before a slanted wall: a file as its recorder writes it, with lenses that OpenCV computes."""

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Picture
from scipy.spatial.transform import Rotation

from helpers.mkv import track, write_mkv
from protodepth.data.arguments import open_domain
from protodepth.data.check import check
from protodepth.data.preview import preview
from protodepth.errors import DataError

cv2 = pytest.importorskip("cv2")
WIDTH, HEIGHT = 256, 144  # of the picture, 16:9
SHARES = {"D0": (0.49, 0.5, 0.47, 0.49), "PV0": (0.5, 0.49, 0.47, 0.63)}  # cx, cy, fx, fy of the whole sensor
LENSES = {
    "D0": (0.9, -0.2, 0.1, 1.2, 0.1, 0.1, 0, 0, 3e-4, -2e-4),
    "PV0": (0.3, -0.05, 0.01, 0.05, -0.01, 0.002, 0, 0, 5e-4, -3e-4),
}
TURN = Rotation.from_euler("xyz", [0.09, 0.005, -0.003]).as_matrix()
SHIFT = np.array([-0.032, -0.002, 0.004])
WALL, FAR = np.array([0.2, -0.1, 1.0]), 1.7  # WALL @ point = FAR, in the depth camera


def calibration(model: str = "CALIBRATION_LensDistortionModelBrownConrady") -> dict[str, Any]:
    places = {"D0": (np.eye(3), np.zeros(3), 1024, 1024), "PV0": (TURN, SHIFT, 4096, 3072)}
    listed = []
    for name, (R, t, width, height) in places.items():
        values = [*SHARES[name], *LENSES[name]]
        own = {"ModelParameterCount": 14, "ModelParameters": values, "ModelType": model}
        placed = {"Rotation": R.ravel().tolist(), "Translation": t.tolist()}
        camera = {"Location": f"CALIBRATION_CameraLocation{name}", "Intrinsics": own, "Rt": placed}
        listed.append({**camera, "SensorWidth": width, "SensorHeight": height})
    return {"CalibrationInformation": {"Cameras": listed}}


def opencv_camera(name: str) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """K and lens as the SDK's documents say: bin, cut out, then from corners to centres."""
    cx, cy, fx, fy = SHARES[name]
    (bw, bh), (left, top), size = {
        "D0": ((512, 512), (96, 90), (320, 288)),
        "PV0": ((WIDTH, WIDTH * 3 // 4), (0, (WIDTH * 3 // 4 - HEIGHT) // 2), (WIDTH, HEIGHT)),
    }[name]
    K = np.array([[fx * bw, 0, cx * bw - left - 0.5], [0, fy * bh, cy * bh - top - 0.5], [0, 0, 1]])
    k1, k2, k3, k4, k5, k6, _, _, p2, p1 = LENSES[name]
    return K, np.array([k1, k2, p1, p2, k3, k4, k5, k6]), size


def rays(name: str) -> np.ndarray:
    """x / z and y / z that each pixel of a camera sees, by OpenCV: h w 2."""
    K, lens, (width, height) = opencv_camera(name)
    pixels = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).reshape(-1, 1, 2).astype(np.float64)
    stop = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_MAX_ITER, 200, 1e-12)
    return cv2.undistortPoints(pixels, K, lens, criteria=stop).reshape(height, width, 2)


def wall_depth() -> bytes:
    x, y = np.moveaxis(rays("D0"), -1, 0)
    depth = FAR / (WALL[0] * x + WALL[1] * y + WALL[2])
    depth[:40] = 0  # nothing measured
    return np.rint(1000 * depth).astype(">u2").tobytes()


def shade(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A picture of the directions themselves: what a straight camera shows can be computed."""
    return np.stack([128 + 90 * x, 128 + 180 * y, 128 + 60 * (x + y)], -1)


def picture() -> bytes:
    x, y = np.moveaxis(rays("PV0"), -1, 0)
    buffer = io.BytesIO()
    pixels = np.clip(np.rint(shade(x, y)), 0, 255).astype(np.uint8)
    Picture.fromarray(pixels).save(buffer, "JPEG", quality=98, subsampling=0)
    return buffer.getvalue()


def write(path: Path, table: dict[str, Any] | None, letters: bytes = b"MJPG", count: int = 12) -> Path:
    image, depth = picture(), wall_depth()
    tracks = [track(1, "COLOR", letters, WIDTH, HEIGHT), track(2, "DEPTH", b"b16g", 320, 288)]
    frames = [[(1, 0, image), *([(2, 500, depth)] if i != 3 else [])] for i in range(count)]
    return write_mkv(path, tracks, frames, table)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("kinect") / "output.mkv", calibration())


def test_the_depth_lies_in_the_picture_where_the_wall_is(path: Path) -> None:
    frame = open_domain(f"azure_kinect:{path}?long_side=256").test[0]
    K, _, _ = opencv_camera("PV0")
    assert np.allclose(frame.intrinsics, K, atol=1e-4)
    v, u = np.mgrid[:HEIGHT, :WIDTH]
    x, y = (u - K[0, 2]) / K[0, 0], (v - K[1, 2]) / K[1, 1]
    normal = TURN @ WALL  # the same wall, seen by the colour camera
    wanted = (FAR + normal @ SHIFT) / (normal[0] * x + normal[1] * y + normal[2])
    depth = frame.sparse_depth + frame.ground_truth
    known = depth > 0
    assert known.mean() > 0.4
    assert np.abs(depth - wanted)[known].max() < 0.006  # half a pixel of a slanted wall, and millimetres
    assert np.median(np.abs(depth - wanted)[known]) < 0.002


def test_the_picture_is_freed_of_its_lens(path: Path) -> None:
    image = open_domain(f"azure_kinect:{path}?long_side=256").test[0].image.astype(float)
    K, _, _ = opencv_camera("PV0")
    v, u = np.mgrid[:HEIGHT, :WIDTH]
    wanted = shade((u - K[0, 2]) / K[0, 0], (v - K[1, 2]) / K[1, 1])
    inner = np.zeros((HEIGHT, WIDTH), bool)
    inner[16:-16, 24:-24] = True  # what the lens shows of the straight picture
    inner &= ((wanted > 2) & (wanted < 253)).all(-1)
    assert inner.mean() > 0.5
    assert np.abs(image - wanted)[inner].max() < 4
    with_lens = np.asarray(Picture.open(io.BytesIO(picture())), float)
    assert np.abs(with_lens - wanted)[inner].max() > 8  # it mattered


def test_frames_without_depth_are_left_out_and_sizes_may_be_reduced(path: Path) -> None:
    domain = open_domain(f"azure_kinect:{path}?long_side=128&stride=1")
    names = [domain.split(s)[i].name for s in ("train", "val", "test") for i in range(len(domain.split(s)))]
    assert "000003" not in names
    assert domain.test[0].image.shape == (72, 128, 3)
    half = domain.test[0].intrinsics
    assert np.allclose(half[:2, 2], opencv_camera("PV0")[0][:2, 2] / 2 - 0.25, atol=1e-4)


def test_it_is_checked_and_drawn_like_all_data(path: Path, tmp_path: Path) -> None:
    report = check(f"azure_kinect:{path}?long_side=128")
    assert {fault.kind for fault in report.faults} <= {"static"}, report.text()  # the camera stands still
    assert preview(f"azure_kinect:{path}?long_side=128", tmp_path / "sheet.png", rows=1).stat().st_size > 1000


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"colour as NV12, expected MJPEG: k4arecorder"):
        open_domain(f"azure_kinect:{write(tmp_path / 'a.mkv', calibration(), b'NV12', 1)}")
    with pytest.raises(DataError, match=r"no calibration.json attached"):
        open_domain(f"azure_kinect:{write(tmp_path / 'b.mkv', None, count=1)}")
    with pytest.raises(DataError, match="lens model 'other'"):
        open_domain(f"azure_kinect:{write(tmp_path / 'c.mkv', calibration('other'), count=1)}")
    broken = copy.deepcopy(calibration())
    del broken["CalibrationInformation"]["Cameras"][1]["Rt"]
    with pytest.raises(DataError, match="not one of an Azure Kinect"):
        open_domain(f"azure_kinect:{write(tmp_path / 'd.mkv', broken, count=1)}")
    only = [track(2, "DEPTH", b"b16g", 320, 288)]
    with pytest.raises(DataError, match=r"has no track COLOR \(it has: DEPTH\)"):
        open_domain(f"azure_kinect:{write_mkv(tmp_path / 'e.mkv', only, [], None)}")
