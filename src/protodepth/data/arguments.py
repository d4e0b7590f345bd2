"""Data arguments, one grammar for all: ``worlds:street``, ``kitti:/path``, ``lists:/path/lists.toml``, a plain path."""

import importlib
import re
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl

from protodepth.data.files.text import reading
from protodepth.data.frame import Domain
from protodepth.errors import ConfigError, DataError, UnknownNameError
from protodepth.registry import Registry


class DomainSource(Protocol):
    """Turns the part after the colon of ``name:argument`` into a Domain."""

    def __call__(self, argument: str, **options: Any) -> Domain: ...


datasets: Registry[DomainSource] = Registry("dataset")


def split_query(argument: str) -> tuple[str, dict[str, str]]:
    """(path, options) of ``path?key=value&key=value``; a file that has the question mark in its name is left whole.

    >>> split_query("/data/desk?stride=3&depth_unit=mm")
    ('/data/desk', {'stride': '3', 'depth_unit': 'mm'})
    """
    path, mark, query = argument.partition("?")
    if not mark or Path(argument).exists():
        return argument, {}
    if not all(part.partition("=")[0] and "=" in part for part in query.split("&")):
        raise DataError(f"{argument!r}: expected key=value&key=value after the question mark, got {query!r}")
    return path, dict(parse_qsl(query, keep_blank_values=True))


BUILT_IN = {  # name -> module that registers it; imported when asked for
    "argoverse2": "protodepth.data.datasets.argoverse2",
    "azure_kinect": "protodepth.data.datasets.azure_kinect",
    "colmap": "protodepth.data.datasets.colmap",
    "ddad": "protodepth.data.datasets.ddad",
    "kitti": "protodepth.data.datasets.kitti",
    "lists": "protodepth.data.datasets.lists",
    "manifest": "protodepth.data.manifest",
    "nuscenes": "protodepth.data.datasets.nuscenes",
    "nyu_v2": "protodepth.data.datasets.nyu_v2",
    "open3d": "protodepth.data.datasets.open3d",
    "polycam": "protodepth.data.datasets.polycam",
    "record3d": "protodepth.data.datasets.record3d",
    "recording": "protodepth.data.recording.open",
    "rosbag": "protodepth.data.datasets.rosbag",
    "scannet": "protodepth.data.datasets.scannet",
    "seven_scenes": "protodepth.data.datasets.seven_scenes",
    "transforms": "protodepth.data.datasets.transforms",
    "tum": "protodepth.data.datasets.tum",
    "vkitti": "protodepth.data.datasets.vkitti",
    "void": "protodepth.data.datasets.void",
    "waymo": "protodepth.data.datasets.waymo",
    "worlds": "protodepth.data.worlds.worlds",
}


def dataset_names() -> tuple[str, ...]:
    """The names of all datasets that a data argument may begin with, built-in and from other packages."""
    return tuple(sorted({*BUILT_IN, *datasets.names()}))


def parse_argument(argument: str) -> tuple[str, str]:
    """(dataset name, the rest).  A plain path is a recording, or what ``data prepare`` wrote if it holds a manifest.

    >>> parse_argument("worlds:street")
    ('worlds', 'street')
    """
    name, colon, rest = argument.partition(":")
    if colon and name in dataset_names():
        return name, rest
    path = Path(split_query(argument)[0])
    if path.is_dir():
        return ("manifest" if (path / "manifest.json").is_file() else "recording"), argument
    if colon and len(name) > 1 and name.isidentifier():  # one letter is a Windows drive
        raise UnknownNameError("dataset", name, dataset_names())
    if path.exists():
        raise DataError(f"{argument} is a file: give the folder of a recording, or name:path with one of {_choices()}")
    raise DataError(f"{argument} does not exist: give the folder of a recording, or name:path with one of {_choices()}")


def _choices() -> str:
    return ", ".join(dataset_names())


def load_source(name: str) -> None:
    """Import the module that registers a dataset, if it is one of the package's own."""
    if name in BUILT_IN:
        importlib.import_module(BUILT_IN[name])


def open_domain(argument: str | Path, **options: Any) -> Domain:
    """The Domain that a data argument means.  ``options`` go to the dataset (see each module's ``load_*``).

    Dataset modules are imported here and not before, so that no command pays for libraries it does not use.
    """
    argument = str(argument)
    name, rest = parse_argument(argument)
    if not rest:
        raise DataError(
            f"{argument!r} ends after the colon: say which, for example worlds:street or kitti:/path/to/kitti"
        )
    load_source(name)
    load = datasets.get(name)
    with reading(argument):
        try:
            return load(rest, **options)
        except TypeError as error:
            unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
            if unknown is None or unknown[1] not in options:
                raise
            raise ConfigError(f"{name} data has no option {unknown[1]!r}: is it spelled right?") from None


def without_folders(value: Any) -> Any:
    """A record to share: of every path in its data arguments the last part, also after ``name:`` and before ``?``."""
    if isinstance(value, dict):
        return {key: without_folders(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(v) for v in value]
    if isinstance(value, Path):
        return value.name
    if not isinstance(value, str):
        return value
    head, colon, rest = value.partition(":")
    head, rest = (head + colon, rest) if colon and "/" not in head else ("", value)
    place, mark, query = rest.partition("?")
    if "/" not in rest or not Path(place).exists():
        return value
    pairs = (pair.partition("=") for pair in query.split("&"))
    return head + Path(place).name + mark + "&".join(k + e + str(without_folders(v)) for k, e, v in pairs)
