"""Where a sensor sits, from the frames of a ROS bag: ``/tf_static`` and, for links that do not move, ``/tf``.

A transform of parent and child takes points of the child's frame into the parent's, p_parent = T p_child.  A chain of
such links, each forwards or backwards, leads from the LiDAR's frame to the camera's.  The camera's frame is its optical
one (z forward, x right, y down), which is what the header of an image or camera_info names by convention.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from protodepth.data.files import cameras
from protodepth.errors import DataError
from protodepth.types import Float

TYPES = ("tf2_msgs/msg/TFMessage", "tf/msg/tfMessage")
STILL = 1e-3  # metres, or the entry of a rotation matrix, by which a link may differ over a bag


@dataclass(frozen=True, slots=True)
class Link:
    """Points of ``child`` in the frame ``parent``."""

    parent: str
    child: str
    pose: Float[np.ndarray, "4 4"]
    moves: bool = False


Links = dict[tuple[str, str], Link]


def plain(frame: str) -> str:
    """ROS 1 writes some names with a leading slash.

    >>> plain("/base_link")
    'base_link'
    """
    return frame.lstrip("/")


def _messages(reader: Any, fixed: bool) -> Iterator[Link]:
    """The links of ``/tf_static`` (fixed) or of all other topics with transforms."""
    chosen = [c for c in reader.connections if c.msgtype in TYPES and c.topic.endswith("tf_static") == fixed]
    for connection, _, data in reader.messages(chosen) if chosen else ():
        for t in reader.deserialize(data, connection.msgtype).transforms:
            turn, shift = t.transform.rotation, t.transform.translation
            rotation = cameras.quaternion_matrix([turn.x, turn.y, turn.z, turn.w])
            pose = cameras.rigid(rotation, [shift.x, shift.y, shift.z])
            if fixed:  # a moving one may be lost for a while
                cameras.placed(pose, f"the link from {t.header.frame_id} to {t.child_frame_id} on {connection.topic}")
            yield Link(plain(t.header.frame_id), plain(t.child_frame_id), pose)


def _read_links(reader: Any, *, fixed: bool) -> Links:
    """(parent, child) -> link; one that is sent again with another pose moves."""
    links: Links = {}
    for link in _messages(reader, fixed):
        known = links.setdefault((link.parent, link.child), link)
        if not known.moves and np.abs(known.pose - link.pose).max() > STILL:
            links[link.parent, link.child] = Link(link.parent, link.child, link.pose, moves=not fixed)
    return links


def _find_chain(links: Links, source: str, target: str) -> list[Link] | None:
    """The shortest chain of links from one frame to another, in either direction; None if there is none."""
    ways: dict[str, list[tuple[str, Link]]] = {}
    for link in links.values():
        ways.setdefault(link.child, []).append((link.parent, link))
        ways.setdefault(link.parent, []).append((link.child, link))
    came: dict[str, list[Link]] = {source: []}
    waiting = deque([source])
    while waiting:
        here = waiting.popleft()
        if here == target:
            return came[here]
        for there, link in ways.get(here, ()):
            if there not in came:
                came[there] = [*came[here], link]
                waiting.append(there)
    return None


def _follow(chain: list[Link], source: str) -> tuple[Float[np.ndarray, "4 4"], list[str]]:
    """(points of the source in the last frame of the chain, the frames on the way)."""
    pose, frames = np.eye(4), [source]
    for link in chain:
        forwards = link.child == frames[-1]
        pose = (link.pose if forwards else cameras.inverse(link.pose)) @ pose
        frames.append(link.parent if forwards else link.child)
    return pose, frames


def _around(links: Links, frame: str) -> str:
    """The frames that can be reached from one, for a message."""
    known = sorted({name for pair in links for name in pair if name != frame})
    reached = [name for name in known if _find_chain(links, frame, name) is not None]
    return ", ".join(reached) or "nothing"


def between(reader: Any, source: str, target: str, where: str) -> tuple[Float[np.ndarray, "4 4"], list[str]]:
    """(4x4 from the source's frame to the target's, the frames on the way), or a DataError that names both."""
    source, target = plain(source), plain(target)
    remedy = "give extrinsics: the 4x4 matrix from cloud to camera (16 numbers or a text file)"
    links = _read_links(reader, fixed=True)
    chain = _find_chain(links, source, target)
    if chain is None:
        links = {**_read_links(reader, fixed=False), **links}
        still = {key: link for key, link in links.items() if not link.moves}
        chain = _find_chain(still, source, target)
    if chain is not None:
        return _follow(chain, source)
    if not links:
        raise DataError(f"{where} has no /tf_static, and a point cloud needs extrinsics: {remedy}")
    moving = _find_chain(links, source, target)
    if moving is not None:
        link = next(link for link in moving if link.moves)
        raise DataError(
            f"{where}: on the way from {source!r} to {target!r} the link {link.parent!r} -> {link.child!r} moves: "
            f"{remedy}"
        )
    raise DataError(
        f"{where}: /tf_static and /tf do not connect the cloud's frame {source!r} with the camera's frame {target!r}; "
        f"{source!r} is connected with {_around(links, source)}, {target!r} with {_around(links, target)}: {remedy}"
    )
