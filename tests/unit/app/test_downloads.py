"""What is downloaded is what was computed, and only by whom it was shown to."""

import asyncio
import io
import json

import numpy as np
import pytest
from PIL import Image

from conftest import shake, tiny_model
from protodepth.app import downloads
from protodepth.app.answers import Answer, Question, answer
from protodepth.app.downloads import KEPT, KINDS, Downloads, Shelf


@pytest.fixture(scope="module")
def found() -> Answer:
    model = tiny_model()
    model.add_domain("hall")
    shake(model, "hall")
    return answer(model, Question(example="office", domain="hall"))


def test_the_files_hold_the_depth_the_cloud_and_what_is_known_of_them(found: Answer):
    depth = found.adapted.depth
    files = {name: downloads.contents(found, name) for name in KINDS}
    np.testing.assert_array_equal(np.load(io.BytesIO(files["depth.npy"])), depth)
    picture = np.asarray(Image.open(io.BytesIO(files["depth.png"]))) / 256
    np.testing.assert_allclose(picture, depth, atol=0.51 / 256)
    assert Image.open(io.BytesIO(files["depth_color.png"])).size[0] > 640
    header, _, body = files["cloud.ply"].partition(b"end_header\n")
    assert f"element vertex {depth.size}".encode() in header
    first = np.frombuffer(body[:12], "<f4")
    K = found.frame.intrinsics
    np.testing.assert_allclose(first, depth[0, 0] * np.array([-K[0, 2] / K[0, 0], -K[1, 2] / K[1, 1], 1]), rtol=1e-5)
    record = json.loads(files["prediction.json"])
    assert record["domain"] == "hall"
    assert record["points"] == int((found.frame.sparse_depth > 0).sum())
    assert record["mean_error_mm"]["domain hall"] == pytest.approx(1000 * found.errors["domain hall"])


def ask(shelf: Shelf, path: str) -> tuple[int, dict[bytes, bytes], bytes]:
    sent = []

    async def send(message):
        sent.append(message)

    async def page(scope, receive, send):
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    asyncio.run(Downloads(page, shelf)({"type": "http", "path": path}, None, send))  # type: ignore[arg-type]
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_a_key_opens_its_own_answer_and_old_ones_are_let_go(found: Answer):
    shelf = Shelf()
    key = shelf.put(found)
    status, headers, body = ask(shelf, f"/download/{key}/depth.npy")
    assert status == 200
    assert headers[b"content-disposition"] == b'attachment; filename="depth.npy"'
    assert int(headers[b"content-length"]) == len(body) > 4 * 480 * 640
    assert ask(shelf, "/download/wrong/depth.npy")[0] == 404
    assert ask(shelf, f"/download/{key}/passwd")[0] == 404
    assert ask(shelf, f"/download/{key}/../depth.npy")[0] == 299  # not ours: left to the page, which refuses it
    assert ask(shelf, "/")[0] == 299
    for _ in range(KEPT):
        shelf.put(found)
    assert ask(shelf, f"/download/{key}/depth.npy")[0] == 404
