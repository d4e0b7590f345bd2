"""Datasets written as their publishers store them, from a known scene."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from helpers.data_scene import Shot, thin
from protodepth.data.files import images
from protodepth.data.frame import Domain

JPEG_LOSS = 6.0  # mean grey levels


def names(domain: Domain, split: str) -> list[str]:
    data = domain.split(split)
    return [data.name(i) for i in range(len(data))]  # type: ignore[attr-defined]


def jpeg(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=97, subsampling=0)
    return buffer.getvalue()


def write_lists(root: Path, shots: list[Shot]) -> Path:
    rows: dict[str, list[str]] = {"image": [], "sparse_depth": [], "intrinsics": [], "ground_truth": []}
    np.save(root / "K.npy", shots[0].K.astype(np.float32))
    for i in range(1, len(shots) - 1):
        images.write_image(root / f"triplet/{i}.png", np.concatenate([s.image for s in shots[i - 1 : i + 2]], 1))
        images.write_depth(root / f"sparse/{i}.png", thin(shots[i].depth))
        images.write_depth(root / f"truth/{i}.png", shots[i].depth)
        for column, name in zip(rows, (f"triplet/{i}.png", f"sparse/{i}.png", "K.npy", f"truth/{i}.png"), strict=True):
            rows[column].append(f"data/old_place/{name}")
    for column, lines in rows.items():
        (root / f"{column}.txt").write_text("\n".join(lines) + "\n\nnot read after an empty line\n")
    text = "[train]\n" + "".join(f'{column} = "{column}.txt"\n' for column in rows)
    (root / "lists.toml").write_text(
        'remap = {"data/old_place/" = ""}\n' + text + "[rules]\nmin_depth = 0.2\nmax_depth = 5.0\n"
    )
    return root / "lists.toml"


def write_void(root: Path, shots: list[Shot]) -> None:
    """Two sequences: the first for training (75 frames, so that one triplet is left after the ends),
    one for testing.
    """
    base = root / "void_500"
    lists: dict[str, list[str]] = {"train": [], "test": []}
    for split, sequence, count in (("train", "copyroom1", 72), ("test", "stairs0", 3)):
        place = base / "data" / sequence
        for i in range(count):
            shot, name = shots[i % len(shots)], f"155{i:04d}.{i:04d}.png"
            images.write_image(place / "image" / name, shot.image)
            images.write_depth(place / "sparse_depth" / name, thin(shot.depth))
            images.write_depth(place / "ground_truth" / name, shot.depth)
            lists[split].append(f"void_500/data/{sequence}/image/{name}")
        np.savetxt(place / "K.txt", shots[0].K)
    for split, lines in lists.items():
        (base / f"{split}_image.txt").write_text("\n".join(lines) + "\n")


DATE = "2011_09_26"
DRIVE = f"{DATE}_drive_0001_sync"


def write_kitti(root: Path, shots: list[Shot], *, layout: str, size: tuple[int, int]) -> None:
    h, w = size
    K = shots[0].K
    P = np.hstack([K, [[-40.0], [0.0], [0.0]]])
    text = "calib_time: 09-Jan-2012 13:57:47\n"
    for camera in ("00", "02", "03"):
        text += f"S_rect_{camera}: {w:.6e} {h:.6e}\nP_rect_{camera}: " + " ".join(f"{v:.9e}" for v in P.ravel()) + "\n"
    (root / "raw" / DATE).mkdir(parents=True)
    (root / "raw" / DATE / "calib_cam_to_cam.txt").write_text(text)
    for camera in ("image_02", "image_03"):
        for i, shot in enumerate(shots):
            images.write_image(root / "raw" / DATE / DRIVE / camera / "data" / f"{i:010d}.png", shot.image)
            if 0 < i < len(shots) - 1:
                for kind, sorted_name in (("velodyne_raw", "sparse_depth"), ("groundtruth", "ground_truth")):
                    head = {"sorted": f"train_val_split/{sorted_name}/train", "official": "train"}[layout]
                    depth = thin(shot.depth) if kind == "velodyne_raw" else shot.depth
                    images.write_depth(root / head / DRIVE / "proj_depth" / kind / camera / f"{i:010d}.png", depth)


def cut(shot: Shot, top: int, left: int, h: int, w: int) -> Shot:
    K = shot.K.copy()
    K[0, 2] -= left
    K[1, 2] -= top
    rows, columns = slice(top, top + h), slice(left, left + w)
    return Shot(shot.image[rows, columns], shot.depth[rows, columns], K, shot.pose)


def sens_bytes(shots: list[Shot], colour: list[bytes], colour_size: tuple[int, int]) -> bytes:
    """A .sens file, version 4, as the format says."""
    K = np.eye(4, dtype="<f4")
    K[:3, :3] = shots[0].K
    h, w = shots[0].depth.shape
    data = struct.pack("<IQ", 4, 8) + b"StructIO"
    data += K.tobytes() + np.eye(4, dtype="<f4").tobytes() + K.tobytes() + np.eye(4, dtype="<f4").tobytes()
    data += struct.pack("<iiIIIIfQ", 2, 1, colour_size[1], colour_size[0], w, h, 1000.0, len(shots))
    for i, (shot, picture) in enumerate(zip(shots, colour, strict=True)):
        depth = zlib.compress(np.rint(shot.depth * 1000).astype("<u2").tobytes())
        data += shot.pose.astype("<f4").tobytes() + struct.pack("<4Q", i, i, len(picture), len(depth)) + picture + depth
    return data


def write_sens(root: Path, shots: list[Shot], folder: str = "scans") -> None:
    scene = root / folder / "scene0000_00"
    scene.mkdir(parents=True)
    data = sens_bytes(shots, [jpeg(s.image) for s in shots], shots[0].depth.shape)
    (scene / "scene0000_00.sens").write_bytes(data)


def write_vkitti2(root: Path, shots: list[Shot], scene: str, condition: str) -> None:
    folder = root / scene / condition
    K, intrinsic, extrinsic = shots[0].K, "frame cameraID K[0,0] K[1,1] K[0,2] K[1,2]\n", "frame cameraID r1,1 ...\n"
    for i, shot in enumerate(shots):
        for camera in (0, 1):
            rgb = folder / "frames" / "rgb" / f"Camera_{camera}" / f"rgb_{i:05d}.jpg"
            rgb.parent.mkdir(parents=True, exist_ok=True)
            rgb.write_bytes(jpeg(shot.image))
            sky = np.where(shot.depth > 0, shot.depth, 655.35)
            images.write_depth(folder / "frames" / "depth" / f"Camera_{camera}" / f"depth_{i:05d}.png", sky, "cm")
            intrinsic += f"{i} {camera} {K[0, 0]} {K[1, 1]} {K[0, 2]} {K[1, 2]}\n"
            world = np.linalg.inv(shot.pose).ravel()
            extrinsic += f"{i} {camera} " + " ".join(f"{v:.9g}" for v in world) + "\n"
    (folder / "intrinsic.txt").write_text(intrinsic)
    (folder / "extrinsic.txt").write_text(extrinsic)
