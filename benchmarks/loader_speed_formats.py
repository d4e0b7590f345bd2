"""The same frames in every format that people have: what ``loader_speed.py`` reads back."""

import importlib.util
import json
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.arguments import open_domain
from protodepth.data.datasets.nyu_v2 import CONTAINER as HDF5
from protodepth.data.datasets.scannet import CONTAINER as SENS
from protodepth.data.entries import EntryFrames, EntryTable, FrameReader
from protodepth.data.files import images as image_files
from protodepth.data.frame import FrameDataset

SAMPLER = "uniform:1500"


@dataclass(frozen=True)
class Material:
    """Frames in memory, and the folder to write them to."""

    folder: Path
    images: list[np.ndarray]
    dense: list[np.ndarray]
    sparse: list[np.ndarray]

    @property
    def size(self) -> tuple[int, int]:
        return self.dense[0].shape[0], self.dense[0].shape[1]

    @property
    def intrinsics(self) -> list[float]:
        height, width = self.size
        return [width, 0, width / 2, 0, width, height / 2, 0, 0, 1]

    def dataset(self, entry: Callable[[int], dict[str, Any]], **reader: Any) -> FrameDataset:
        """Training frames with both neighbours, described by ``entry(number)``."""
        entries = [{"id": str(i), "K": self.intrinsics, **entry(i)} for i in range(1, len(self.images) - 1)]
        return EntryFrames(EntryTable.pack(entries), FrameReader(root=self.folder, **reader))

    def around(self, i: int, name: Callable[[int], str]) -> dict[str, Any]:
        return {"image": name(i), "neighbours": [name(i - 1), name(i + 1)]}


def material(folder: Path, count: int, size: tuple[int, int]) -> Material:
    """Smooth noise, which compresses about like a photograph, and a slanted depth with steps."""
    rng = np.random.default_rng(0)
    images, dense = [], []
    y, x = np.mgrid[: size[0], : size[1]]
    for i in range(count):
        small = rng.integers(0, 255, (size[0] // 8, size[1] // 8, 3)).astype(np.uint8)
        large = np.repeat(np.repeat(small, 8, 0), 8, 1).astype(int) + rng.integers(-6, 7, (*size, 3))
        images.append(np.clip(large, 0, 255).astype(np.uint8))
        dense.append(
            (1.5 + 2.0 * x / size[1] + (y // 60 + i) % 3 * 0.4 + rng.normal(0, 0.004, size)).astype(np.float32)
        )
    sparse = [np.where(rng.random(size) < 0.01, d, 0) for d in dense]
    return Material(folder, images, dense, sparse)


def write_files(m: Material) -> None:
    for i, image in enumerate(m.images):
        image_files.write_image(m.folder / f"{i}.png", image)
        image_files.write_image(m.folder / f"{i}.jpg", image)
        image_files.write_image(m.folder / f"t{i}.png", np.concatenate([image] * 3, 1))
        image_files.write_depth(m.folder / f"s{i}.png", m.sparse[i])
        image_files.write_depth(m.folder / f"d{i}.png", m.dense[i], "mm")


def png(m: Material) -> FrameDataset:
    return m.dataset(lambda i: {**m.around(i, lambda n: f"{n}.png"), "sparse": f"s{i}.png"})


def jpeg(m: Material) -> FrameDataset:
    return m.dataset(lambda i: {**m.around(i, lambda n: f"{n}.jpg"), "sparse": f"s{i}.png"})


def triplet(m: Material) -> FrameDataset:
    return m.dataset(lambda i: {"image": f"t{i}.png", "triplet": True, "sparse": f"s{i}.png"})


def dense_png(m: Material, sampler: str) -> FrameDataset:
    return m.dataset(lambda i: {**m.around(i, lambda n: f"{n}.jpg"), "dense": f"d{i}.png"}, unit="mm", sampler=sampler)


def sens(m: Material) -> FrameDataset:
    colours, depths, data = [], [], b""
    for i, depth in enumerate(m.dense):
        colour = (m.folder / f"{i}.jpg").read_bytes()
        packed = zlib.compress(np.rint(depth * 1000).astype("<u2").tobytes())
        colours.append(f"x.sens#{len(data)},{len(colour)}")
        depths.append(f"x.sens#{len(data) + len(colour)},{len(packed)},{m.size[0]},{m.size[1]},1000")
        data += colour + packed
    (m.folder / "x.sens").write_bytes(data)
    return m.dataset(
        lambda i: {**m.around(i, lambda n: colours[n]), "dense": depths[i]}, sampler=SAMPLER, container=SENS
    )


def h5(m: Material) -> FrameDataset:
    import h5py

    for i, (image, depth) in enumerate(zip(m.images, m.dense, strict=True)):
        with h5py.File(m.folder / f"{i}.h5", "w") as file:
            file["rgb"], file["depth"] = image.transpose(2, 0, 1), depth
    return m.dataset(
        lambda i: {**m.around(i, lambda n: f"{n}.h5#rgb"), "dense": f"{i}.h5#depth"}, sampler=SAMPLER, container=HDF5
    )


def mat(m: Material) -> FrameDataset:
    import h5py

    with h5py.File(m.folder / "x.mat", "w") as file:
        file["images"] = np.stack([image.transpose(2, 1, 0) for image in m.images])
        file["depths"] = np.stack([depth.T for depth in m.dense])
    return m.dataset(
        lambda i: {**m.around(i, lambda n: f"x.mat#images/{n}"), "dense": f"x.mat#depths/{i}"},
        sampler=SAMPLER,
        container=HDF5,
    )


def record3d(m: Material) -> FrameDataset:
    """Depth of a quarter of the size, as phones have it, packed where the library is there."""
    packed = importlib.util.find_spec("liblzfse") is not None
    height, width = m.size
    K = np.reshape(m.intrinsics, (3, 3)).T.ravel().tolist()
    poses = [[0, 0, 0, 1, 0.05 * i, 0, 0] for i in range(len(m.images))]
    meta = {"w": width, "h": height, "dw": width // 4, "dh": height // 4, "K": K, "poses": poses}
    with zipfile.ZipFile(m.folder / "x.r3d", "w") as file:
        file.writestr("metadata", json.dumps(meta))
        for i, depth in enumerate(m.dense):
            data = np.ascontiguousarray(depth[::4, ::4], "<f4").tobytes()
            if packed:
                import liblzfse

                data = liblzfse.compress(data)
            file.writestr(f"rgbd/{i}.jpg", (m.folder / f"{i}.jpg").read_bytes())
            file.writestr(f"rgbd/{i}.depth", data)
    return open_domain(f"record3d:{m.folder / 'x.r3d'}?stride=1&long_side={width}").train


def bag(m: Material) -> FrameDataset:
    """A ROS 1 bag with plain colour and depth images."""
    from rosbags.rosbag1 import Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    types, (height, width) = store.types, m.size
    kinds = {"/cam/image": "sensor_msgs/msg/Image", "/cam/depth": "sensor_msgs/msg/Image"}
    kinds["/cam/camera_info"] = "sensor_msgs/msg/CameraInfo"
    roi = types["sensor_msgs/msg/RegionOfInterest"](x_offset=0, y_offset=0, height=0, width=0, do_rectify=False)
    with Writer(m.folder / "x.bag") as writer:
        lines = {topic: writer.add_connection(topic, name, typestore=store) for topic, name in kinds.items()}
        for i, (image, depth) in enumerate(zip(m.images, m.dense, strict=True)):
            time = 10**18 + i * 10**8
            stamp = types["builtin_interfaces/msg/Time"](sec=time // 10**9, nanosec=time % 10**9)
            header = types["std_msgs/msg/Header"](seq=i, stamp=stamp, frame_id="cam")
            arrays = {"/cam/image": (image, "rgb8"), "/cam/depth": (np.rint(depth * 1000).astype("<u2"), "16UC1")}
            messages = {
                topic: types["sensor_msgs/msg/Image"](
                    header=header, height=height, width=width, encoding=kind, is_bigendian=0,
                    step=array.nbytes // height, data=np.frombuffer(array.tobytes(), np.uint8),
                )
                for topic, (array, kind) in arrays.items()
            }  # fmt: skip
            messages["/cam/camera_info"] = types["sensor_msgs/msg/CameraInfo"](
                header=header, height=height, width=width, distortion_model="plumb_bob", D=np.zeros(5),
                K=np.array(m.intrinsics),
                R=np.eye(3).ravel(), P=np.zeros(12), binning_x=0, binning_y=0, roi=roi,
            )  # fmt: skip
            for topic, message in messages.items():
                writer.write(lines[topic], time, bytes(store.serialize_ros1(message, kinds[topic])))
    return open_domain(f"rosbag:{m.folder / 'x.bag'}?stride=1&sampler={SAMPLER}").train


FORMATS: dict[str, tuple[Callable[[Material], FrameDataset], str]] = {  # name -> (writer, library)
    "PNG, sparse PNG (VOID, KITTI)": (png, ""),
    "PNG, three frames side by side (lists)": (triplet, ""),
    "JPEG, sparse PNG (prepared, nuScenes, Waymo)": (jpeg, ""),
    "JPEG, dense PNG, uniform:1500 (ScanNet folders)": (lambda m: dense_png(m, SAMPLER), ""),
    "JPEG, dense PNG, harris:1500 (recording)": (lambda m: dense_png(m, "harris:1500"), ""),
    ".sens, uniform:1500 (ScanNet)": (sens, ""),
    ".h5, uniform:1500 (NYUv2)": (h5, "h5py"),
    ".mat, uniform:1500 (NYUv2 labelled)": (mat, "h5py"),
    ".r3d (Record3D)": (record3d, ""),
    "ROS bag, depth image, uniform:1500": (bag, "rosbags"),
}
