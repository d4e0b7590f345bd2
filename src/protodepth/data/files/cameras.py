"""Intrinsics and poses in files: the notations people have, one matrix out, and small arithmetic of poses in NumPy.

Intrinsics become a 3x3 matrix in pixels with pixel centres at integers; poses become 4x4 camera-to-world matrices
with x right, y down, z forward (OpenCV), metres; a lost pose is NaN.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.files.text import load_array, number, numbers, parse_json, read_text
from protodepth.errors import DataError, MissingFileError
from protodepth.types import Float

INTRINSICS_SUFFIXES = (".txt", ".json", ".yaml", ".yml", ".npy")
OPENCV_FROM_OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])  # of a camera with y up that looks along -z: ARKit, nerfstudio
LARGEST = 1e6  # pixels
FARTHEST = 1e9  # metres: farther than any place on earth in any system of coordinates


def intrinsics_matrix(numbers: Sequence[float] | np.ndarray, where: str = "intrinsics") -> Float[np.ndarray, "3 3"]:
    """K from 4 numbers (fx, fy, cx, cy), 9 (3x3), 12 (3x4) or 16 (4x4), row by row.

    >>> intrinsics_matrix([500, 501, 320, 240])[1].tolist()
    [0.0, 501.0, 240.0]
    """
    values = np.asarray(numbers, np.float64).ravel()
    if values.size == 4:
        fx, fy, cx, cy = values
        values = np.array([fx, 0, cx, 0, fy, cy, 0, 0, 1])
    elif values.size == 12:
        values = values.reshape(3, 4)[:, :3].ravel()
    elif values.size == 16:
        values = values.reshape(4, 4)[:3, :3].ravel()
    if values.size != 9:
        raise DataError(f"{where} has {values.size} numbers, expected 9 (3x3) or 4 (fx, fy, cx, cy)")
    K = values.reshape(3, 3)
    if np.abs(K).max() > LARGEST or abs(K[0, 1]) > abs(K[0, 0]):
        raise DataError(f"{where}: no camera has {K.tolist()}: expected pixels, and a skew (row 1, column 2) near 0")
    if not np.isfinite(K).all() or K[0, 0] <= 0 or K[1, 1] <= 0:
        raise DataError(f"{where}: focal lengths must be positive and finite, got fx={K[0, 0]:g}, fy={K[1, 1]:g}")
    if not np.allclose([K[1, 0], K[2, 0], K[2, 1], K[2, 2] - 1], 0, atol=1e-6):
        raise DataError(f"{where}: the last row must be 0 0 1, got {K[2].tolist()}: is the matrix transposed?")
    return K


def intrinsics_fault(K: Float[np.ndarray, "3 3"], size: tuple[int, int]) -> str | None:
    """Why K cannot belong to an image of (height, width), or None."""
    height, width = size
    if K[0, 0] < 5 and K[0, 2] <= 2:
        return (
            f"looks normalised (fx={K[0, 0]:g}): multiply its first row by width {width}, its second by height {height}"
        )
    if not (0 < K[0, 2] < width and 0 < K[1, 2] < height):
        point = f"({K[0, 2]:g}, {K[1, 2]:g})"
        return f"principal point {point} lies outside the {width}x{height} image: is K of another resolution?"
    if not 0.15 * width < K[0, 0] < 20 * width:
        return f"focal length {K[0, 0]:g} px does not fit a width of {width} px: is K of another resolution?"
    centre = K[0, 2] / width, K[1, 2] / height
    if not all(0.2 < c < 0.8 for c in centre):
        place = f"{centre[0]:.0%} x {centre[1]:.0%}"
        return f"principal point at {place} of the {width}x{height} image: is K of another resolution or crop?"
    return None


def read_intrinsics(path: Path) -> Float[np.ndarray, "3 3"]:
    """K from .txt (3x3, fx, fy, cx, cy, or COLMAP's cameras.txt), .npy, .json (also RealSense, Open3D, nerfstudio), or
    .yaml (ROS camera_info, OpenCV, Kalibr, ORB-SLAM).
    """
    path = Path(path)
    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            return intrinsics_matrix(load_array(path), str(path))
        text = read_text(path)
    except FileNotFoundError:
        raise MissingFileError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as intrinsics ({error})") from None
    if suffix == ".json":
        return _from_json(text, path)
    if suffix in (".yaml", ".yml"):
        return _from_yaml(text, path)
    other = _from_colmap(text, path)
    other = _from_four(text, path) if other is None else other
    return intrinsics_matrix(numbers_in(text, str(path)), str(path)) if other is None else other


def numbers_in(text: str, where: str) -> list[float]:
    """The numbers in a file of intrinsics or poses; any other word is an error that names its line."""
    values: list[float] = []
    for row, line in enumerate(text.splitlines(), 1):
        for word in re.split(r"[\s,;\[\]()]+", line.split("#")[0].strip()):
            if not word:
                continue
            try:
                values.append(number(word))
            except ValueError:
                raise DataError(f"{where}, line {row}: {word[:40]!r} is not a number") from None
    return values


def parse_intrinsics(text: str, what: str = "--intrinsics") -> Float[np.ndarray, "3 3"]:
    """K from a word (``what`` is its name for errors): ``fx,fy,cx,cy``, nine numbers, or the path of a file.

    >>> parse_intrinsics("500,500,320,240")[0].tolist()
    [500.0, 0.0, 320.0]
    """
    if re.fullmatch(r"[\s,;0-9eE.+-]+", text):
        return intrinsics_matrix(numbers_in(text, what), what)
    if "," in text and not Path(text).exists():
        raise DataError(f"{what} {text!r}: expected fx,fy,cx,cy as finite numbers in pixels, or the path of a file")
    return read_intrinsics(Path(text))


FOUR = (
    ("fx", "fy", "cx", "cy"),
    ("fl_x", "fl_y", "cx", "cy"),
    ("fx", "fy", "ppx", "ppy"),
)  # ours, nerfstudio, RealSense
MATRICES = ("K", "k", "intrinsics", "intrinsic_matrix", "camera_matrix")


def _from_json(text: str, path: Path) -> Float[np.ndarray, "3 3"]:
    return named_intrinsics(parse_json(text, path), str(path))


def named_intrinsics(value: Any, where: str) -> Float[np.ndarray, "3 3"]:
    """K from numbers, or from a dictionary in one of the notations of JSON files.

    >>> named_intrinsics({"fx": 500, "fy": 500, "ppx": 320, "ppy": 240}, "intrinsics")[0].tolist()
    [500.0, 0.0, 320.0]
    """
    columns = isinstance(value, dict) and "intrinsic_matrix" in value  # Open3D writes column by column
    if isinstance(value, dict):
        names = next((four for four in FOUR if all(k in value for k in four)), None)
        keys = [k for k in MATRICES if k in value]
        if names:
            value = [value[k] for k in names]
        elif keys:
            value = value[keys[0]]
            value = value.get("data", value) if isinstance(value, dict) else value
        else:
            known = "fx, fy, cx, cy (or fl_x, fl_y; ppx, ppy) or K (nine numbers)"
            raise DataError(f"{where} has the keys {sorted(map(str, value))}, expected {known}")
    try:
        numbers = np.asarray(value)
        if numbers.dtype.kind not in "iuf" or any(isinstance(v, bool) for v in np.asarray(value, object).ravel()):
            raise ValueError(numbers.dtype)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{where}: the intrinsics are not numbers") from None
    if columns and numbers.shape == (9,) and not numbers[2] and not numbers[5]:
        numbers = numbers.reshape(3, 3).T
    return intrinsics_matrix(numbers, where)


def _from_yaml(text: str, path: Path) -> Float[np.ndarray, "3 3"]:
    """ROS, OpenCV, Kalibr and ORB-SLAM: each is a key followed by numbers, so no YAML library is needed."""
    matrix = r"^\s*(?:camera_matrix|cameraMatrix|camera_intrinsics|M1|K)\s*:[^\[]*?\bdata\s*:\s*\[?(.*)"
    patterns = ((matrix, 9), (r"^\s*[Kk]\s*:(.*)", 9), (r"^\s*intrinsics\s*:(.*)", 4))
    for pattern, count in patterns:
        place = re.search(pattern, text, re.MULTILINE | re.DOTALL)
        if place:
            # whole words, for parts of one such as 50_0 would be other numbers; a lone dash begins an entry of a list
            words = [w for w in re.findall(r"[^\s,\[\]]+", re.sub("#.*", "", place.group(1))) if w != "-"]
            return intrinsics_matrix(numbers_in(" ".join(words[:count]), str(path)), str(path))
    four = _from_four(text, path)
    if four is not None:
        return four
    raise DataError(
        f"{path} has neither K (camera_info), camera_matrix (OpenCV), intrinsics (Kalibr), Camera.fx (ORB-SLAM) "
        "nor fx, fy, cx, cy"
    )


def _from_four(text: str, path: Path) -> Float[np.ndarray, "3 3"] | None:
    """K from lines ``fx: 500`` or ``fx = 500``, as people write them and ORB-SLAM does; None for any other text."""
    for head in ("", "Camera\\.", "Camera1\\."):
        four = [re.search(rf"^\s*{head}{key}\s*[:=]\s*([-+.\d][^\s,;#]*)", text, re.MULTILINE) for key in FOUR[0]]
        if all(four):
            return intrinsics_matrix(numbers_in(" ".join(m.group(1) for m in four if m), str(path)), str(path))
    return None


# places of fx, fy, cx, cy among the numbers of COLMAP's models whose pictures are near to a pinhole's
COLMAP_MODELS = {
    **dict.fromkeys(("SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL"), (0, 0, 1, 2)),
    **dict.fromkeys(("PINHOLE", "OPENCV", "FULL_OPENCV"), (0, 1, 2, 3)),
}


def colmap_matrix(model: str, numbers: Sequence[float], where: str) -> Float[np.ndarray, "3 3"]:
    """K of a COLMAP camera.  Its first pixel has its centre at (0.5, 0.5), ours at (0, 0).

    >>> colmap_matrix("SIMPLE_PINHOLE", [500, 320, 240], "a camera")[0].tolist()
    [500.0, 0.0, 319.5]
    """
    if model not in COLMAP_MODELS:
        raise DataError(f"{where} has the model {model}, expected one of {', '.join(COLMAP_MODELS)}: undistort first")
    fx, fy, cx, cy = (float(numbers[i]) for i in COLMAP_MODELS[model])
    return intrinsics_matrix([fx, fy, cx - 0.5, cy - 0.5], where)


def _from_colmap(text: str, path: Path) -> Float[np.ndarray, "3 3"] | None:
    """The one camera of a COLMAP cameras.txt; None for any other text."""
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    cameras = [words for words in rows if len(words) > 4 and re.fullmatch("[A-Z_]+", words[1])]
    if not cameras or len(cameras) != len(rows):
        return None
    if len(cameras) > 1:
        raise DataError(
            f"{path} has {len(cameras)} cameras, expected one for all pictures (or open it as colmap:FOLDER)"
        )
    words = cameras[0]
    return colmap_matrix(words[1], numbers_in(" ".join(words[4:]), str(path)), str(path))


def quaternion_matrix(q: Sequence[float] | np.ndarray) -> Float[np.ndarray, "3 3"]:
    """Rotation of a quaternion in the order x, y, z, w; NaN for one that is none (lost trackers write zeros).

    >>> quaternion_matrix([0, 0, 1, 0]).round(6).tolist()[0]
    [-1.0, 0.0, 0.0]
    """
    values = np.asarray(q, np.float64)
    if not 0 < np.abs(values).max() < FARTHEST:
        return np.full((3, 3), np.nan)
    x, y, z, w = values / np.linalg.norm(values)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def rigid(rotation: np.ndarray, translation: Sequence[float] | np.ndarray) -> Float[np.ndarray, "4 4"]:
    """4x4 of a pose that a file gives as a rotation matrix and a translation."""
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation, translation
    return pose


def inverse(pose: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "4 4"]:
    """Inverse of a pose, a rigid motion: (R^T, -R^T t); NaN for a lost one."""
    if not _is_place(pose).all():
        return np.full((4, 4), np.nan)
    R = pose[:3, :3].T
    return rigid(R, -R @ pose[:3, 3])


def placed(pose: Float[np.ndarray, "4 4"], where: object) -> Float[np.ndarray, "4 4"]:
    """The same pose, of a sensor that cannot be lost: one without numbers would move its points nowhere in silence."""
    if not _is_place(pose).all():
        raise DataError(f"{where} has a pose that is no place (NaN, infinite, or beyond {FARTHEST:.0e} m): damaged?")
    return pose


def _is_place(pose: np.ndarray) -> np.ndarray:
    """Number by number."""
    return np.abs(pose) < FARTHEST


def relative_pose(from_t: Float[np.ndarray, "4 4"], to_tau: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "4 4"]:
    r"""g_{tau t} of two camera-to-world poses: :math:`T_\tau^{-1} T_t`, from camera t to camera tau."""
    return inverse(to_tau) @ from_t


def _poses_are_valid(poses: Float[np.ndarray, "n 4 4"]) -> np.ndarray:
    """Which poses are such: finite, with a rotation (trackers write zeros or -inf when lost)."""
    finite = np.all(_is_place(poses), axis=(1, 2))
    R = np.where(finite[:, None, None], poses[:, :3, :3], 0.0)
    straight = np.abs(R @ np.swapaxes(R, 1, 2) - np.eye(3)).max((1, 2)) < 1e-2
    return finite & straight & (np.linalg.det(R) > 0)


def pose_is_valid(pose: Float[np.ndarray, "4 4"]) -> bool:
    """Whether a pose is one; see ``_poses_are_valid``."""
    return bool(_poses_are_valid(pose[None])[0])


def read_poses(path: Path, ids: Sequence[str]) -> Float[np.ndarray, "n 4 4"]:
    """Camera-to-world poses, one line a frame in the order of ``ids``: 16 numbers, 12 (KITTI), or an id and either; or
    lines of TUM (time tx ty tz qx qy qz qw), by the time in the images' names if they are times, else in order.

    A line of NaN or infinity is a lost pose and becomes NaN.
    """
    try:
        lines = [(n, line.split()) for n, line in enumerate(read_text(path).splitlines(), 1) if line.strip()]
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from None
    lines = [(n, words) for n, words in lines if not words[0].startswith("#")]
    if lines and len(lines[0][1]) == 8:
        return _timed_poses(lines, path, ids)
    named = bool(lines) and len(lines[0][1]) in (13, 17)
    if not named and len(lines) != len(ids):
        raise DataError(
            f"{path} has {len(lines)} poses for {len(ids)} images: expected one line of 16 numbers for each image "
            "in order, or the image's name and 16 numbers"
        )
    rows = np.reshape([_pose_line(words[named:], path, n) for n, words in lines], (-1, 4, 4))
    rows[~_poses_are_valid(rows)] = np.nan
    table = dict(zip([words[0] for _, words in lines] if named else ids, rows, strict=True))
    lost = np.full((4, 4), np.nan)
    return np.stack([table.get(i, lost) for i in ids]) if ids else np.empty((0, 4, 4))


NEAR = 0.02  # seconds between a picture and its pose, at most


def _timed_poses(lines: Sequence[tuple[int, list[str]]], path: Path, ids: Sequence[str]) -> Float[np.ndarray, "n 4 4"]:
    """TUM's lines: to each image the pose nearest in time."""
    rows = np.array([_eight(words, path, n) for n, words in lines])
    poses = np.stack([_moved(row[1:]) for row in rows])
    times = _image_times(ids)
    if times is None or times.max() < rows[:, 0].min() - NEAR or times.min() > rows[:, 0].max() + NEAR:
        if len(rows) != len(ids):
            raise DataError(
                f"{path} has {len(rows)} poses with times for {len(ids)} images: expected names of images that are "
                "their times in seconds (or nanoseconds), or as many poses as images"
            )
        return poses
    near = np.abs(rows[:, 0][None] - times[:, None]).argmin(1)
    apart = np.abs(rows[near, 0] - times)
    return np.where((apart < NEAR)[:, None, None], poses[near], np.nan)


def _image_times(ids: Sequence[str]) -> Float[np.ndarray, "n"] | None:
    """Seconds that the names of images are, or None if they are none.

    >>> _image_times(["1305031102175304000", "1305031102211214000"]).round(2).tolist()
    [1305031102.18, 1305031102.21]
    """
    try:
        times = np.array([number(i) for i in ids])
    except ValueError:
        return None
    return times / (1e9 if len(times) and times.max() > 1e14 else 1)


def _eight(words: Sequence[str], path: Path, row: int) -> list[float]:
    try:
        values = [number(w) for w in words]
    except ValueError:
        raise DataError(f"{path}, line {row}: not all words are numbers") from None
    if len(values) != 8:
        raise DataError(f"{path}, line {row} has {len(values)} numbers, expected 8 (time tx ty tz qx qy qz qw)")
    return values


def _moved(seven: np.ndarray) -> Float[np.ndarray, "4 4"]:
    """A pose from tx ty tz qx qy qz qw; NaN where it is lost."""
    if not np.isfinite(seven).all() or not np.linalg.norm(seven[3:]) > 1e-6:
        return np.full((4, 4), np.nan)
    return rigid(quaternion_matrix(seven[3:]), seven[:3])


def _pose_line(words: Sequence[str], path: Path, row: int) -> list[float]:
    """16 numbers."""
    try:
        values = numbers(words)
    except ValueError:
        raise DataError(f"{path}, line {row}: not all words are numbers") from None
    if len(values) not in (12, 16):
        raise DataError(f"{path}, line {row} has {len(values)} numbers, expected 16 (4x4, row by row) or 12 (3x4)")
    return values if len(values) == 16 else [*values, 0.0, 0.0, 0.0, 1.0]
