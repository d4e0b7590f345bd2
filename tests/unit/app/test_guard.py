"""Who may ask the page, and how much."""

import asyncio
from pathlib import Path

import pytest

from protodepth.app.answers import Limits
from protodepth.app.guard import Guard


def scope(
    method: str = "POST", host: bytes = b"127.0.0.1:7860", path: str = "/", **headers: bytes
) -> dict[str, object]:
    pairs = [(k.replace("_", "-").encode(), v) for k, v in headers.items()]
    return {"type": "http", "method": method, "path": path, "headers": [(b"host", host), *pairs]}


GUARD = Guard(None, Limits(file_bytes=50))  # type: ignore[arg-type]


def test_the_guard_refuses_other_hosts_and_large_or_unsized_requests():
    assert GUARD.refusal(scope("GET")) is None
    assert GUARD.refusal(scope("GET", b"localhost:7860")) is None
    for host in (b"evil.example", b"127.0.0.1.evil.example:7860", b"", b"127.0.0.1:7860@evil.example", b"\xff"):
        assert GUARD.refusal(scope("GET", host))[0] == 400
    assert GUARD.refusal(scope(content_length=b"100")) is None
    assert GUARD.refusal(scope(content_length=b"101"))[0] == 413
    assert GUARD.refusal(scope(content_length=b"-1"))[0] == 411
    assert GUARD.refusal(scope(transfer_encoding=b"chunked"))[0] == 411
    # the server reads such a body to its end, however short it is said to be
    assert GUARD.refusal(scope(content_length=b"10", transfer_encoding=b"chunked"))[0] == 411
    assert GUARD.refusal(scope(content_length=b"9" * 5000))[0] == 411  # more digits than Python reads


def test_a_page_elsewhere_cannot_send_anything_here():
    size = {"content_length": b"10"}
    assert GUARD.refusal(scope(**size, origin=b"http://127.0.0.1:7860")) is None
    for origin in (b"https://evil.example", b"http://127.0.0.1:1", b"null", b"https://127.0.0.1:7860"):
        assert GUARD.refusal(scope(**size, origin=origin))[0] == 403
    for site in (b"cross-site", b"same-site"):
        assert GUARD.refusal(scope(**size, sec_fetch_site=site))[0] == 403
    assert GUARD.refusal({**scope(origin=b"http://evil.example"), "type": "websocket"})[0] == 403


def test_uploads_are_limited_in_number_and_in_size(tmp_path: Path):
    upload = scope(path="/gradio_api/upload", content_length=b"10")
    guard = Guard(None, Limits(file_bytes=50, files=2, stored_bytes=100), tmp_path)  # type: ignore[arg-type]
    assert guard.refusal(upload) is None
    (tmp_path / "a").write_bytes(bytes(10))
    assert guard.refusal(upload) is None
    guard.coming = 95  # another one is on its way
    assert guard.refusal(upload)[0] == 429
    guard.coming = 0
    (tmp_path / "b").write_bytes(bytes(1))
    assert guard.refusal(upload)[0] == 429
    assert guard.refusal(scope(content_length=b"10")) is None  # the rest of the page goes on


class OfThePage(Exception):
    """Gradio raises its own where a request names no function."""


@pytest.mark.parametrize("error", [ValueError("embedded null byte"), OfThePage(), None])
def test_a_request_that_the_page_stumbles_over_is_the_senders_mistake(error: Exception | None):
    async def page(scope, receive, send):
        if error is not None:
            raise error
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"Internal Server Error"})

    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(page, Limits())(scope("GET"), None, send))  # type: ignore[arg-type]
    assert [m["type"] for m in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 400
    assert sent[1]["body"] == b"the request was not understood"
