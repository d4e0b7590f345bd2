"""Results to take along: kept in memory for a while, made into a file when somebody asks for it."""

import io
import json
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from protodepth.app.answers import Answer
from protodepth.app.guard import Message, Receive, Scope, Send, say
from protodepth.data.files import images
from protodepth.report import pictures
from protodepth.report.results import plain

KEPT = 8  # answers: the page shows one, and another window or two may be open
KINDS = {
    "depth.png": ("image/png", "16-bit PNG, metres x 256"),
    "depth_color.png": ("image/png", "picture with its colour bar"),
    "depth.npy": ("application/octet-stream", "float32, metres"),
    "cloud.ply": ("application/octet-stream", "coloured point cloud"),
    "prediction.json": ("application/json", "domain, similarity, distance, errors"),
}


class Shelf:
    """The last answers, each under a key that nobody can guess."""

    def __init__(self, colormap: str = pictures.DEPTH_COLORMAP) -> None:
        self.colormap = colormap
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._one = threading.Lock()

    def put(self, answer: Answer) -> str:
        key = secrets.token_urlsafe(16)
        with self._one:
            self._answers[key] = answer
            while len(self._answers) > KEPT:
                self._answers.popitem(last=False)
        return key

    def file(self, key: str, name: str) -> bytes | None:
        """The bytes of a file, or None if there is no such answer or file (any more)."""
        with self._one:
            answer = self._answers.get(key)
        return contents(answer, name, self.colormap) if answer is not None and name in KINDS else None


def contents(answer: Answer, name: str, colormap: str = pictures.DEPTH_COLORMAP) -> bytes:
    depth, out = answer.adapted.depth, io.BytesIO()
    if name == "depth.png":
        return images.encode_depth(depth, "kitti", name)
    if name == "depth_color.png":
        return pictures.depth_picture(depth, cmap=colormap)
    if name == "depth.npy":
        np.save(out, depth.astype(np.float32))
        return out.getvalue()
    if name == "cloud.ply":
        return pictures.ply(*pictures.point_cloud(depth, answer.frame.image, answer.frame.intrinsics))
    return json.dumps(plain(record(answer)), indent=2).encode()


def record(answer: Answer) -> dict[str, Any]:
    """What prediction.json says."""
    p = answer.adapted
    return {
        "frame": answer.frame.name,
        "size": list(p.depth.shape),
        "intrinsics": answer.frame.intrinsics,
        "domain": p.domain,
        "unknown": p.unknown,
        "similarity": p.similarity,
        "distance": p.distance,
        "excess": p.excess,
        "points": answer.points,
        "points_in_range": answer.in_range,
        "unit": answer.note,
        "seconds": answer.seconds,
        "mean_error_mm": {name: 1000 * error for name, error in answer.errors.items()},
    }


class Downloads:
    """Middleware behind the guard: answers ``/download/KEY/NAME`` and leaves the rest to the page."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], shelf: Shelf) -> None:
        self.app, self.shelf = app, shelf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = re.fullmatch(r"/download/([\w-]+)/([\w.]+)", str(scope.get("path", "")))
        if scope["type"] != "http" or asked is None:
            await self.app(scope, receive, send)
            return
        data = self.shelf.file(asked[1], asked[2])
        if data is None:
            await say(send, 404, "this result is no longer here: complete the depth again")
            return
        headers = [
            (b"content-type", KINDS[asked[2]][0].encode()),
            (b"content-length", str(len(data)).encode()),
            (b"content-disposition", f'attachment; filename="{asked[2]}"'.encode()),
            (b"cache-control", b"no-store"),
        ]
        start: Message = {"type": "http.response.start", "status": 200, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": data})
