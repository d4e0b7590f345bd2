"""Bags of ROS 1 and 2, written from a known scene and read back."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from helpers.data_scene import Shot, walk
from protodepth.data.arguments import open_domain
from protodepth.errors import DataError

SIZE = (40, 56)
LIDAR_TO_CAMERA = np.eye(4)
LIDAR_TO_CAMERA[:3, :3] = Rotation.from_euler("zyx", [0.05, 0.02, -0.03]).as_matrix() @ [
    [0, -1, 0],
    [0, 0, -1],
    [1, 0, 0],
]
LIDAR_TO_CAMERA[:3, 3] = [0.1, -0.2, 0.05]


@pytest.fixture(scope="module")
def shots() -> list[Shot]:
    return walk(14, size=SIZE, step=0.05)


def cloud_of(shot: Shot) -> tuple[np.ndarray, np.ndarray]:
    """(points in the LiDAR's frame, the sparse map they came from): every fifth pixel lifted by its depth."""
    sparse = np.zeros(SIZE)
    sparse[::5, ::5] = shot.depth[::5, ::5]
    v, u = np.nonzero(sparse)
    z = sparse[v, u]
    camera = np.linalg.inv(shot.K) @ (np.stack([u, v, np.ones(len(u))]) * z)
    return (np.linalg.inv(LIDAR_TO_CAMERA) @ np.vstack([camera, np.ones(len(u))]))[:3].T, sparse


Transform = tuple[str, str, np.ndarray]  # parent, child, points of the child in the parent's frame


def write_bag(
    path: Path,
    shots: list[Shot],
    *,
    ros: int,
    kind: str,
    transforms: dict[str, list[list[Transform]]] | None = None,
    picture: str = "/cam/image_raw",
    lens: tuple[str, list[float]] = ("plumb_bob", [0.0] * 5),
) -> None:
    """``transforms``: topic -> messages -> links."""
    pytest.importorskip("rosbags")
    from rosbags import rosbag1, rosbag2
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC if ros == 1 else Stores.ROS2_HUMBLE)
    if ros == 1:
        store.register(get_types_from_msg("geometry_msgs/TransformStamped[] transforms\n", "tf2_msgs/msg/TFMessage"))
    types = store.types
    writer = rosbag1.Writer(path) if ros == 1 else rosbag2.Writer(path, version=9)

    def header(t: int, frame: str = "cam_optical") -> object:
        stamp = types["builtin_interfaces/msg/Time"](sec=t // 10**9, nanosec=t % 10**9)
        extra = {"seq": 0} if ros == 1 else {}
        return types["std_msgs/msg/Header"](stamp=stamp, frame_id=frame, **extra)

    def tf(t: int, links: list[Transform]) -> object:
        vector, turn = types["geometry_msgs/msg/Vector3"], types["geometry_msgs/msg/Quaternion"]
        sent = []
        for parent, child, pose in links:
            x, y, z, w = Rotation.from_matrix(pose[:3, :3]).as_quat()
            moved = types["geometry_msgs/msg/Transform"](
                translation=vector(*pose[:3, 3].tolist()), rotation=turn(x=x, y=y, z=z, w=w)
            )
            sent.append(
                types["geometry_msgs/msg/TransformStamped"](
                    header=header(t, parent), child_frame_id=child, transform=moved
                )
            )
        return types["tf2_msgs/msg/TFMessage"](transforms=sent)

    def serialize(msg: object, name: str) -> bytes:
        return bytes(store.serialize_ros1(msg, name) if ros == 1 else store.serialize_cdr(msg, name))

    def image(t: int, array: np.ndarray, encoding: str) -> object:
        data = np.frombuffer(array.tobytes(), np.uint8)
        step = array.nbytes // array.shape[0]
        return types["sensor_msgs/msg/Image"](
            header=header(t), height=SIZE[0], width=SIZE[1], encoding=encoding, is_bigendian=0, step=step, data=data
        )

    def cloud(t: int, points: np.ndarray) -> object:
        field = types["sensor_msgs/msg/PointField"]
        fields = [field(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate(("intensity", "x", "y", "z"))]
        rows = np.hstack([np.zeros((len(points) + 1, 1)), np.vstack([points, [np.nan] * 3])]).astype("<f4")
        return types["sensor_msgs/msg/PointCloud2"](
            header=header(t, "/lidar" if ros == 1 else "lidar"), height=1, width=len(rows), fields=fields,
            is_bigendian=False, point_step=16,
            row_step=16 * len(rows), data=np.frombuffer(rows.tobytes(), np.uint8), is_dense=False,
        )  # fmt: skip

    def info(t: int) -> object:
        roi = types["sensor_msgs/msg/RegionOfInterest"](x_offset=0, y_offset=0, height=0, width=0, do_rectify=False)
        K, P = shots[0].K.ravel(), np.hstack([shots[0].K + np.diag([1, 2, 0]), np.zeros((3, 1))])
        names = ("D", "K", "R", "P") if ros == 1 else ("d", "k", "r", "p")
        arrays = dict(zip(names, (np.array(lens[1]), K, np.eye(3).ravel(), P.ravel()), strict=True))
        return types["sensor_msgs/msg/CameraInfo"](
            header=header(t),
            height=SIZE[0],
            width=SIZE[1],
            distortion_model=lens[0],
            binning_x=0,
            binning_y=0,
            roi=roi,
            **arrays,
        )

    kinds = {picture: "sensor_msgs/msg/Image", "/cam/camera_info": "sensor_msgs/msg/CameraInfo"}
    kinds |= dict.fromkeys(transforms or {}, "tf2_msgs/msg/TFMessage")
    kinds |= (
        {"/lidar/points": "sensor_msgs/msg/PointCloud2"} if kind == "cloud" else {"/cam/depth": "sensor_msgs/msg/Image"}
    )
    with writer:
        connections = {topic: writer.add_connection(topic, name, typestore=store) for topic, name in kinds.items()}
        for topic, messages in (transforms or {}).items():
            for n, links in enumerate(messages):
                when = 10**18 + n
                writer.write(connections[topic], when, serialize(tf(when, links), kinds[topic]))
        for i, shot in enumerate(shots):
            t = 10**18 + i * 100_000_000
            bgr = np.ascontiguousarray(shot.image[..., ::-1])
            messages = {picture: (t, image(t, bgr, "bgr8")), "/cam/camera_info": (t, info(t))}
            late = t + 12_000_000
            if kind == "cloud":
                messages["/lidar/points"] = (late, cloud(late, cloud_of(shot)[0]))
            elif kind == "16UC1":
                messages["/cam/depth"] = (late, image(late, np.rint(shot.depth * 1000).astype("<u2"), "16UC1"))
            else:
                messages["/cam/depth"] = (late, image(late, shot.depth.astype("<f4"), "32FC1"))
            for topic, (when, msg) in messages.items():
                writer.write(connections[topic], when, serialize(msg, kinds[topic]))


@pytest.mark.parametrize("ros", [1, 2])
def test_a_bag_with_a_point_cloud_gives_the_projected_points(tmp_path: Path, shots: list[Shot], ros: int) -> None:
    path = tmp_path / ("a.bag" if ros == 1 else "bag2")
    write_bag(path, shots, ros=ros, kind="cloud")
    numbers = ",".join(str(v) for v in LIDAR_TO_CAMERA.ravel())
    domain = open_domain(f"rosbag:{path}", extrinsics=numbers)
    frame = domain.train[2]
    assert np.array_equal(frame.image, shots[3].image)
    assert np.abs(frame.sparse_depth - cloud_of(shots[3])[1]).max() < 1e-4
    assert np.allclose(frame.intrinsics, shots[3].K)
    assert all(np.array_equal(a, shots[j].image) for a, j in zip(frame.neighbours, (2, 4), strict=True))
    with pytest.raises(DataError, match="needs extrinsics"):
        open_domain(f"rosbag:{path}")
    backwards = ",".join(str(v) for v in (np.diag([1.0, -1, -1, 1]) @ LIDAR_TO_CAMERA).ravel())
    with pytest.raises(DataError, match="no point of the first cloud falls into the picture"):
        open_domain(f"rosbag:{path}", extrinsics=backwards)


def robot() -> list[Transform]:
    """lidar -> mast -> base forwards, base -> cam_link -> cam_optical backwards; together they are LIDAR_TO_CAMERA."""

    def rigid(angles: list[float], shift: list[float]) -> np.ndarray:
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = Rotation.from_euler("xyz", angles).as_matrix(), shift
        return pose

    mast, link = rigid([0.1, -0.4, 2.0], [0.3, 0.0, 1.2]), rigid([0.0, 0.2, -0.3], [0.5, -0.1, 0.4])
    optical = rigid([0.0, 0.0, 0.0], [0.01, 0.02, 0.0])
    optical[:3, :3] = [[0, 0, 1], [-1, 0, 0], [0, -1, 0]]
    lidar = np.linalg.inv(mast) @ link @ optical @ LIDAR_TO_CAMERA
    return [
        ("base", "cam_link", link),
        ("cam_link", "cam_optical", optical),
        ("base", "mast", mast),
        ("mast", "lidar", lidar),
    ]


def bag_path(folder: Path, ros: int) -> Path:
    return folder / ("a.bag" if ros == 1 else "bag2")


@pytest.mark.parametrize("ros", [1, 2])
def test_the_place_of_the_lidar_is_found_in_the_frames_of_the_bag(tmp_path: Path, shots: list[Shot], ros: int) -> None:
    """One link is sent on /tf, again and again the same; another frame moves, but is not on the way."""
    fixed, sent = robot()[:3], robot()[3]
    odometry = [
        ("odom", "base", np.block([[np.eye(3), np.full((3, 1), n)], [np.zeros((1, 3)), np.ones((1, 1))]]))
        for n in range(4)
    ]
    moving = [[sent, link] for link in odometry]
    path = bag_path(tmp_path, ros)
    write_bag(path, shots, ros=ros, kind="cloud", transforms={"/tf_static": [fixed[:1], fixed[1:]], "/tf": moving})
    domain = open_domain(f"rosbag:{path}")
    assert np.abs(domain.train[2].sparse_depth - cloud_of(shots[3])[1]).max() < 1e-4
    assert domain.identity["options"]["extrinsics"] == "tf: lidar -> mast -> base -> cam_link -> cam_optical"


def test_a_broken_or_moving_chain_of_frames_names_them(tmp_path: Path, shots: list[Shot]) -> None:
    write_bag(
        tmp_path / "a.bag", shots[:2], ros=1, kind="cloud", transforms={"/tf_static": [robot()[:1] + robot()[2:]]}
    )
    with pytest.raises(
        DataError, match="do not connect the cloud's frame 'lidar' with the camera's frame 'cam_optical'"
    ) as caught:
        open_domain(f"rosbag:{tmp_path / 'a.bag'}")
    assert "'lidar' is connected with base, cam_link, mast, 'cam_optical' with nothing: give extrinsics" in str(
        caught.value
    )
    *rest, (parent, child, pose) = robot()
    turned = [[(parent, child, pose @ np.diag([-1.0, -1, 1, 1]) if n else pose)] for n in range(3)]
    write_bag(tmp_path / "b.bag", shots[:2], ros=1, kind="cloud", transforms={"/tf_static": [rest], "/tf": turned})
    with pytest.raises(
        DataError, match=r"from 'lidar' to 'cam_optical' the link 'mast' -> 'lidar' moves: give extrinsics"
    ):
        open_domain(f"rosbag:{tmp_path / 'b.bag'}")


def test_a_rectified_picture_has_the_camera_of_P_and_an_unknown_lens_is_refused(
    tmp_path: Path, shots: list[Shot]
) -> None:
    fisheye = ("equidistant", [0.1, 0.01, 0.0, 0.0])
    write_bag(tmp_path / "a.bag", shots[:3], ros=1, kind="16UC1", picture="/cam/image_rect", lens=fisheye)
    frame = open_domain(f"rosbag:{tmp_path / 'a.bag'}").test[0]
    assert np.allclose(frame.intrinsics, shots[0].K + np.diag([1, 2, 0]), atol=1e-4)
    write_bag(tmp_path / "b.bag", shots[:3], ros=1, kind="16UC1", lens=fisheye)
    with pytest.raises(DataError, match=r"lens model 'equidistant'.*image_rect"):
        open_domain(f"rosbag:{tmp_path / 'b.bag'}")


@pytest.mark.parametrize(("ros", "kind"), [(1, "16UC1"), (2, "32FC1")])
def test_a_bag_with_a_depth_image_is_dense(tmp_path: Path, shots: list[Shot], ros: int, kind: str) -> None:
    path = tmp_path / ("a.bag" if ros == 1 else "bag2")
    write_bag(path, shots, ros=ros, kind=kind)
    frame = open_domain(f"rosbag:{path}", sampler="uniform:100").test[0]
    number = (int(frame.name) - 10**18) // 100_000_000
    assert (frame.sparse_depth > 0).sum() == 100
    whole = frame.sparse_depth + frame.ground_truth
    assert np.abs(whole - shots[number].depth).max() <= (0.0005 if kind == "16UC1" else 0) + 1e-5


def test_a_wrong_topic_lists_the_topics_of_the_bag(tmp_path: Path, shots: list[Shot]) -> None:
    write_bag(tmp_path / "a.bag", shots[:2], ros=1, kind="16UC1")
    with pytest.raises(DataError, match=r"no topic '/nope'.*/cam/camera_info \(CameraInfo\)"):
        open_domain(f"rosbag:{tmp_path / 'a.bag'}", image="/nope")
    (tmp_path / "b.bag").write_bytes(b"not a bag")
    with pytest.raises(DataError, match="not a readable ROS 1 or ROS 2 bag"):
        open_domain(f"rosbag:{tmp_path / 'b.bag'}")
