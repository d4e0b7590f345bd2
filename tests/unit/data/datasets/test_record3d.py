"""Phone recordings, written from a known scene and read back."""

import json
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from helpers.data_scene import Shot, assert_neighbours_are, walk
from helpers.dataset_writers import JPEG_LOSS, jpeg
from protodepth.data.arguments import open_domain
from protodepth.data.check import check
from protodepth.data.files import images
from protodepth.data.frame import Frame
from protodepth.data.preview import preview
from protodepth.errors import DataError

SIZE = (40, 56)


@pytest.fixture(scope="module")
def shots() -> list[Shot]:
    return walk(14, size=SIZE, step=0.05)


def r3d_metadata(shots: list[Shot], **changes: object) -> dict[str, object]:
    """Depth of half the size; K column by column; poses with y up that look along -z."""
    poses = []
    for shot in shots:
        arkit = shot.pose @ np.diag([1.0, -1, -1, 1])
        poses.append([*Rotation.from_matrix(arkit[:3, :3]).as_quat().tolist(), *arkit[:3, 3].tolist()])
    sizes = {"w": SIZE[1], "h": SIZE[0], "dw": SIZE[1] // 2, "dh": SIZE[0] // 2}
    meta = {**sizes, "fps": 30, "K": shots[0].K.T.ravel().tolist(), "poses": poses, **changes}
    return {key: value for key, value in meta.items() if value is not None}


def plain(data: bytes) -> bytes:
    """One uncompressed block of an LZFSE stream."""
    return b"bvx-" + len(data).to_bytes(4, "little") + data + b"bvx$"


def lzfse_head(data: bytes) -> bytes:
    """A packed block whose head is right."""
    return struct.pack("<4sIQQQ", b"bvx2", len(data), 0, 0, 32) + b"bvx$"


def write_r3d(
    path: Path,
    shots: list[Shot],
    *,
    pack: Callable[[bytes], bytes] = plain,
    conf: np.ndarray | None = None,
    **meta: object,
) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("metadata", json.dumps(r3d_metadata(shots, **meta)))
        for i, shot in enumerate(shots):
            file.writestr(f"rgbd/{i}.jpg", jpeg(shot.image))
            file.writestr(f"rgbd/{i}.depth", pack(shot.depth[1::2, 1::2].astype("<f4").tobytes()))
            if conf is not None:
                file.writestr(f"rgbd/{i}.conf", pack(conf.astype(np.uint8).tobytes()))
    return path


def on_cells(shot: Shot) -> np.ndarray:
    """The scene's depth at the middle of each 2 x 2 cell."""
    expected = np.zeros(SIZE)
    expected[1::2, 1::2] = shot.depth[1::2, 1::2]
    return expected


def assert_is_third_shot(frame: Frame, shots: list[Shot]) -> None:
    assert_neighbours_are(frame, shots[2], [shots[1], shots[3]], loss=JPEG_LOSS)
    assert np.allclose(frame.intrinsics, shots[2].K, atol=1e-4)
    assert np.abs(frame.sparse_depth - on_cells(shots[2])).max() < 1e-5


def test_an_r3d_file_gives_points_at_their_places_with_arkit_poses_turned(tmp_path: Path, shots: list[Shot]) -> None:
    path = write_r3d(tmp_path / "scan.r3d", shots)
    assert_is_third_shot(open_domain(f"record3d:{path}", stride=1).train[1], shots)
    reduced = open_domain(f"record3d:{path}?stride=1&long_side=28").train[1]
    assert reduced.image.shape[:2] == (20, 28)
    assert np.allclose(reduced.intrinsics[:2], shots[2].K[:2] / 2, atol=1e-4)


def test_packed_depth_is_unpacked_whatever_the_app_stored_of_its_size(tmp_path: Path, shots: list[Shot]) -> None:
    library = pytest.importorskip("liblzfse")
    path = write_r3d(tmp_path / "scan.r3d", shots, pack=library.compress)
    assert_is_third_shot(open_domain(f"record3d:{path}", stride=1).train[1], shots)
    old = write_r3d(tmp_path / "old.r3d", shots, pack=library.compress, dw=None, dh=None)
    assert_is_third_shot(open_domain(f"record3d:{old}", stride=1).train[1], shots)
    with zipfile.ZipFile(path) as file:
        file.extractall(tmp_path / "unpacked")
    assert_is_third_shot(open_domain(f"record3d:{tmp_path / 'unpacked'}", stride=1).train[1], shots)
    (tmp_path / "unpacked" / "rgbd" / "2.depth").write_bytes(b"bvx2 something else")
    with pytest.raises(DataError, match=r"rgbd/2\.depth is not an LZFSE stream"):
        open_domain(f"record3d:{tmp_path / 'unpacked'}", stride=1).train[1]


def test_without_the_library_packed_depth_names_the_command(
    tmp_path: Path, shots: list[Shot], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "liblzfse", None)
    path = write_r3d(tmp_path / "scan.r3d", shots, pack=lzfse_head)
    with pytest.raises(DataError, match=r"rgbd/0\.depth is packed with LZFSE: pip install pyliblzfse"):
        open_domain(f"record3d:{path}")


@pytest.mark.parametrize("packed", [bytes(500_000), b"bvx2" + bytes.fromhex("00000040") + bytes(17) + b"\x20"])
def test_depth_that_promises_more_than_its_map_is_refused_unread(
    packed: bytes, tmp_path: Path, shots: list[Shot]
) -> None:
    """A ZIP of 500 bytes may hold 500 kB, a stream of 30 bytes may say that it unpacks to 1 GB."""
    path = write_r3d(tmp_path / "scan.r3d", shots)
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in (members | {"rgbd/2.depth": packed}).items():
            file.writestr(name, data)
    with pytest.raises(DataError, match=r"rgbd/2\.depth (has 500000 bytes, expected at most|is not an LZFSE stream)"):
        open_domain(f"record3d:{path}", stride=1).train[1]


def test_points_of_low_confidence_are_left_out(tmp_path: Path, shots: list[Shot]) -> None:
    conf = np.ones((SIZE[0] // 2, SIZE[1] // 2))
    conf[:, :5], conf[:, -5:] = 0, 2
    path = write_r3d(tmp_path / "scan.r3d", shots, conf=conf)
    counts = []
    for least in (0, 1, 2):
        points = open_domain(f"record3d:{path}?stride=1&confidence={least}").train[1].sparse_depth[1::2, 1::2] > 0
        assert not points[conf < least].any()
        counts.append(int(points.sum()))
    assert counts[0] > counts[1] > counts[2] > 0
    with pytest.raises(DataError, match="confidence is 7"):
        open_domain(f"record3d:{path}?confidence=7")


@pytest.mark.parametrize("inner", ["", "EXR_RGBD"])
def test_the_exr_export_gives_the_same_frames(tmp_path: Path, shots: list[Shot], inner: str) -> None:
    library = pytest.importorskip("OpenEXR")
    folder = tmp_path / inner
    for name in ("rgb", "depth"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps(r3d_metadata(shots)))
    for i, shot in enumerate(shots):
        (folder / "rgb" / f"{i}.jpg").write_bytes(jpeg(shot.image))
        pixels = {"R": shot.depth[1::2, 1::2].astype(np.float32)}
        library.File({"compression": library.ZIP_COMPRESSION, "type": library.scanlineimage}, pixels).write(
            str(folder / "depth" / f"{i}.exr")
        )
    assert_is_third_shot(open_domain(f"record3d:{tmp_path}", stride=1).train[1], shots)
    assert check(f"record3d:{tmp_path}").ok
    assert preview(f"record3d:{tmp_path}", tmp_path / "sheet.png", rows=1).stat().st_size > 1000
    (folder / "depth" / "2.exr").write_bytes((folder / "depth" / "2.exr").read_bytes()[:400])
    with pytest.raises(DataError, match=r"2\.exr cannot be read as EXR"):
        open_domain(f"record3d:{tmp_path}", stride=1).train[1]


def test_a_recording_may_hold_exr_depth(tmp_path: Path, shots: list[Shot]) -> None:
    library = pytest.importorskip("OpenEXR")
    (tmp_path / "depth").mkdir()
    for i, shot in enumerate(shots):
        images.write_image(tmp_path / "image" / f"{i}.png", shot.image)
        library.File({"type": library.scanlineimage}, {"Z": shot.depth.astype(np.float32)}).write(
            str(tmp_path / "depth" / f"{i}.exr")
        )
    np.savetxt(tmp_path / "intrinsics.txt", shots[0].K)
    domain = open_domain(f"{tmp_path}?sampler=uniform:50")
    frame = domain.test[0]
    assert domain.identity["unit"] == "metres"
    assert np.abs(frame.sparse_depth + frame.ground_truth - shots[int(frame.name)].depth).max() < 1e-5


def test_the_selfie_camera_has_no_poses(tmp_path: Path, shots: list[Shot]) -> None:
    path = write_r3d(tmp_path / "face.r3d", shots, poses=[[0, 0, 0, 1, 0, 0, 0]] * len(shots), fps=10)
    domain = open_domain(f"record3d:{path}")
    assert domain.train[0].poses == ()
    assert domain.identity["options"]["stride"] == 1
    assert not domain.identity["options"]["poses"]


@pytest.mark.parametrize(
    ("meta", "message"),
    [({"K": None}, "metadata has no K"), ({"poses": [[0, 0, 0, 1, i, 0, 0] for i in range(3)]},
                                          "3 poses, but there is a frame 13")],
)  # fmt: skip
def test_metadata_that_does_not_fit_is_named(
    tmp_path: Path, shots: list[Shot], meta: dict[str, Any], message: str
) -> None:
    path = write_r3d(tmp_path / "scan.r3d", shots, **meta)
    with pytest.raises(DataError, match=message):
        open_domain(f"record3d:{path}")
    (tmp_path / "b.r3d").write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"b\.r3d is not an \.r3d file"):
        open_domain(f"record3d:{tmp_path / 'b.r3d'}")
