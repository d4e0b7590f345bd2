"""What stands before the page: other hosts and origins, large bodies and too many uploads are refused."""

import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from protodepth.app.answers import Limits

logger = logging.getLogger("protodepth")
HOST = "127.0.0.1"
LENGTH = re.compile(rb"[0-9]{1,18}")
# The page may load from itself only; a sandboxed frame inside shows the point clouds.
POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'self'; object-src 'none'; base-uri 'self'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Refusal = tuple[int, str]


class Guard:
    """Middleware.  A page elsewhere could point its name at this machine (Host) or send a form here (Origin)."""

    def __init__(
        self, app: Callable[[Scope, Receive, Send], Awaitable[None]], limits: Limits, folder: Path | None = None
    ) -> None:
        self.app, self.limits, self.folder = app, limits, folder
        self.coming = 0  # bytes of uploads on their way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        refusal = self.refusal(scope)
        if refusal is None:
            size = _body_size(scope) if _is_upload(scope) else 0
            self.coming += size
            try:
                await self.answered(scope, receive, send)
            finally:
                self.coming -= size
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await say(send, *refusal)

    async def answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The page's answer with our headers; a request that it stumbles over is the sender's mistake, not a crash."""
        began, stumbled = [False], [False]

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                began[0] = True
                stumbled[0] = message["status"] >= 500
                if stumbled[0]:
                    await say(send, *STUMBLED)
                    return
                message["headers"] = [*message.get("headers", []), *HEADERS]
            if not stumbled[0]:
                await send(message)

        try:
            await self.app(scope, receive, guarded)
        except Exception as error:  # also kinds of the page's own
            logger.warning("a request to %s was not understood: %r", scope.get("path"), error)
            if not began[0] and scope["type"] == "http":
                await say(send, *STUMBLED)

    def refusal(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if not re.fullmatch(rf"({re.escape(HOST)}|localhost)(:\d{{1,5}})?", host):
            return 400, "this page answers to its own address only"
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            return None
        origin = headers.get(b"origin", b"").decode("latin-1")
        elsewhere = headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none")
        if elsewhere or (origin and origin != f"http://{host}"):
            return 403, "this page takes requests from itself only"
        if scope["type"] != "http" or scope["method"] == "OPTIONS":
            return None
        if b"transfer-encoding" in headers or not LENGTH.fullmatch(headers.get(b"content-length", b"")):
            return 411, "the length of the request is needed"  # of one in chunks it says nothing, whatever it says
        if _body_size(scope) > 2 * self.limits.file_bytes:
            return 413, "the request is too large"
        return self.full() if _is_upload(scope) else None

    def full(self) -> Refusal | None:
        """Uploads are removed after a while; until then there is room for some."""
        stored = [p.stat().st_size for p in self.folder.rglob("*") if p.is_file()] if self.folder else []
        if len(stored) >= self.limits.files or sum(stored) + self.coming >= self.limits.stored_bytes:
            return 429, "too many files were uploaded: try again in a quarter of an hour"
        return None


STUMBLED = (400, "the request was not understood")


def _is_upload(scope: Scope) -> bool:
    return str(scope.get("path", "")).rstrip("/").endswith("/upload")


def _body_size(scope: Scope) -> int:
    length = dict(scope["headers"]).get(b"content-length", b"0")
    return int(length) if LENGTH.fullmatch(length) else 0


async def say(send: Send, code: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text.encode())).encode())]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
