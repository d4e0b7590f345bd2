"""What a folder that is no recording seems to hold, as words that end an error message."""

from collections import Counter
from pathlib import Path

from protodepth.data.files import cameras, images

# A file or folder by which another layout is known -> what to write before the path.
SIGNS = {
    "transforms.json": "transforms",
    "keyframes": "polycam",
    "rgb.txt": "tum",
    "frame-*.color.*": "seven_scenes",
    "sparse/0/cameras.*": "colmap",
    "cameras.bin": "colmap",
    "points3D.*": "colmap",
    "trajectory.log": "open3d",
    "*.db3": "rosbag",
    "*.mcap": "rosbag",
    "EXR_RGBD": "record3d",
}
FILES = {".bag": "rosbag", ".mkv": "azure_kinect", ".r3d": "record3d"}
PICTURES = ("image", "images", "rgb", "color", "colour", "left", "img")
MAPS = ("sparse", "sparse_depth", "lidar", "depth", "depths", "depth_raw", "aligned_depth")


def suggest(folder: Path, *, camera: bool = False) -> str:
    """What to write instead, for a folder without pictures or depth (``camera``: without intrinsics); may be empty."""
    layout = _other_layout(folder)
    if layout:
        return f".\n  It looks like another layout: write {layout}"
    settings = _camera_file(folder) if camera else _folders(folder)
    if settings:
        in_file = ", ".join(f'{key} = "{value}"' for key, value in settings.items())
        in_path = "&".join(f"{key}={value}" for key, value in settings.items())
        meant = " and ".join(settings.values())
        return f'.\n  Is it {meant}?  Write {in_file} into recording.toml, or "{folder}?{in_path}"'
    return "" if camera else _contents(folder)


def _other_layout(folder: Path) -> str:
    """``name:path`` of a layout that another reader knows."""
    for sign, name in SIGNS.items():
        if next(folder.glob(sign), None) is not None:
            return f"{name}:{folder}"
    single = [p for p in sorted(folder.iterdir()) if p.suffix.lower() in FILES]
    return f"{FILES[single[0].suffix.lower()]}:{single[0]}" if single else ""


def _folders(folder: Path) -> dict[str, str]:
    """Which folders of other names may be meant by image and depth."""
    settings = {}
    for key, names, suffixes in (("image", PICTURES, images.IMAGE_SUFFIXES), ("depth", MAPS, images.DEPTH_SUFFIXES)):
        name = next((n for n in names if _count(folder / n, suffixes)), None)
        usual = ("image",) if key == "image" else ("sparse", "depth")
        if name and name not in usual:
            settings[key] = name
    return settings


def _camera_file(folder: Path) -> dict[str, str]:
    """The one file that may be of intrinsics."""
    known = cameras.INTRINSICS_SUFFIXES
    likely = [
        p.name
        for p in sorted(folder.iterdir())
        if p.suffix.lower() in known and any(word in p.name.lower() for word in ("cam", "calib", "intrin", "k.txt"))
    ]
    return {"intrinsics": likely[0]} if len(likely) == 1 else {}


def _contents(folder: Path) -> str:
    """The kinds of files that lie there instead, and in its folders."""
    places = [folder, *(p for p in sorted(folder.iterdir()) if p.is_dir() and not p.name.startswith((".", "__")))]
    counts = {p: Counter(f.suffix.lower() for f in p.iterdir() if f.is_file() and f.suffix) for p in places[:8]}
    parts = []
    for place, count in counts.items():
        if count:
            name = "the folder itself" if place == folder else f"{place.name}/"
            parts.append(f"{name} {', '.join(f'{n} {suffix}' for suffix, n in count.most_common(3))}")
    readable = ", ".join(dict.fromkeys((*images.IMAGE_SUFFIXES, *images.DEPTH_SUFFIXES)))
    return f".\n  There are: {'; '.join(parts)}.  Files that are read: {readable}" if parts else ""


def _count(folder: Path, suffixes: tuple[str, ...]) -> int:
    return sum(p.suffix.lower() in suffixes for p in folder.iterdir()) if folder.is_dir() else 0
