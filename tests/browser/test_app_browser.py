"""The local page in a real browser: it shows, it turns, it takes files, it asks nothing of the network,
it leaves nothing.
"""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.canvas import PIXELS
from protodepth.app import answers
from protodepth.app.downloads import KINDS
from protodepth.app.examples import example
from protodepth.app.server import running
from protodepth.backbones.lite import Lite
from protodepth.data.files import images
from protodepth.model import ProtoDepth

pytest.importorskip("gradio", reason="the extra is missing: pip install 'protodepth[app]'")
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.browser
WAIT = 120_000  # milliseconds; a busy machine takes its time


@dataclass
class Site:
    address: str
    folder: Path


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    torch.manual_seed(0)
    model = ProtoDepth(Lite((0.1, 8.0), (4, 6, 8, 10, 12), (4, 4, 6, 6, 8)))
    model.add_domain("room", base=True)
    model.add_domain("hall", seed=1)
    with torch.no_grad():
        for prototypes in model.domain("hall").sets.values():
            prototypes.A *= 1.2
    with running(model, limits=answers.Limits(seconds=WAIT / 1000)) as address:
        place = Path(os.environ["GRADIO_TEMP_DIR"])
        yield Site(address, place)
    assert not place.exists(), "uploads outlive the page"
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(address.rstrip("/").rsplit(":", 1)[1]))) != 0, "the port stays open"


class Visit:
    """An open page that remembers what it asked for and complained about."""

    def __init__(self, browser, site: Site, width: int = 1400, height: int = 1100, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page.set_default_timeout(WAIT)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        self.page.goto(site.address)
        self.page.wait_for_selector(".pd-pictures img")

    def choose(self, name: str, option: str) -> None:
        self.page.locator(f"#{name} input").click()
        self.page.get_by_role("option", name=option).click()

    def after(self, act: Callable[[], object]) -> None:
        """Do something and wait until the results are new."""
        self.page.evaluate("document.querySelectorAll('.pd-result, .pd-error').forEach(e => e.classList.add('old'))")
        act()
        self.page.wait_for_selector(".pd-result:not(.old), .pd-error:not(.old)")

    def complete(self) -> None:
        self.after(lambda: self.page.click("#pd-go"))

    def pick(self, name: str) -> None:
        self.page.click(f"[data-world={name}]")
        self.page.wait_for_selector(f".pd-result[data-frame={name}]")

    def answer(self) -> str:
        """What stands right of the slider."""
        return self.page.locator(".pd-answer").inner_text()

    def captions(self) -> list[str]:
        return self.page.locator(".pd-pictures figcaption").all_inner_texts()

    def cloud(self):
        return self.page.frame_locator("iframe.pd-cloud").locator("canvas")

    def pixels(self, number: int = 0) -> list[int]:
        self.page.wait_for_timeout(300)
        return self.cloud().nth(number).evaluate(PIXELS)


@pytest.fixture(scope="module")
def visit(browser, site: Site) -> Iterator[Visit]:
    found = Visit(browser, site)
    yield found
    found.page.close()


def test_the_page_shows_an_example_at_once_and_asks_only_this_machine(visit: Visit, site: Site):
    assert visit.page.locator(".pd-examples button").count() == 4
    assert visit.page.locator("[data-world=warehouse]").get_attribute("aria-pressed") == "true"
    assert visit.captions()[0] == "image"
    assert visit.captions()[1].endswith("sparse points")
    assert visit.answer().split(":")[1].strip() in ("domain hall", "domain room")
    assert visit.page.locator(".pd-bar").count() == 2
    assert visit.page.locator("#pd-camera input, #pd-camera textarea").input_value() == answers.intrinsics_text(
        example("warehouse")
    )
    outside = [u for u in visit.requests if not u.startswith((site.address, "data:", "blob:", "about:"))]
    assert outside == []
    assert visit.complaints == []


def test_the_slider_moves_by_mouse_and_by_keyboard_and_the_list_changes_its_left_side(visit: Visit):
    slider, figure = visit.page.locator(".pd-stack input"), visit.page.locator(".pd-compare")
    box = slider.bounding_box()
    visit.page.mouse.click(box["x"] + 0.25 * box["width"], box["y"] + box["height"] / 2)
    assert 20 <= int(slider.input_value()) <= 30
    assert figure.evaluate("e => e.style.getPropertyValue('--at')") == f"{slider.input_value()}%"
    before = int(slider.input_value())
    slider.press("ArrowRight")
    assert int(slider.input_value()) == before + 1
    left = visit.page.locator(".pd-left:visible")
    assert left.get_attribute("alt") == "dense depth, base network"
    visit.page.locator(".pd-compare select").select_option(index=2)
    assert left.get_attribute("alt") == "dense depth, ground truth"


STOP = """() => {
    const e = document.activeElement, frame = e.closest('.pd-stack') ?? e.closest('.wrap') ?? e;
    const style = [e, frame].map(x => getComputedStyle(x));
    const seen = style.some(s => s.outlineStyle !== 'none' || s.boxShadow !== 'none') || e.tagName === 'IFRAME';
    return [e.dataset.world ?? (e.id || e.ariaLabel || e.download || e.title || e.tagName), seen];
}"""


def test_the_tabulator_alone_reaches_everything_and_one_sees_where_it_is(visit: Visit):
    visit.page.locator("[data-world=room]").focus()
    visit.page.keyboard.press("Shift+Tab")
    stops = [visit.page.evaluate(STOP)]
    while stops[-1][0] != "point clouds":
        assert len(stops) < 30, f"the clouds are not reached: {stops}"
        visit.page.keyboard.press("Tab")
        visit.page.wait_for_timeout(50)  # a style that fades in
        stops.append(visit.page.evaluate(STOP))
    names = [name for name, _ in stops]
    expected = ["warehouse", "room", "Click to upload or drop files", "Unit of your sparse depth"]
    expected += ["Domain", "pd-go", "Where the two maps meet", "Left of the slider", *KINDS, "point clouds"]
    assert [name for name in dict.fromkeys(names) if name in expected] == expected
    assert names.count("Click to upload or drop files") == 2  # the picture's and the points'
    assert [name for name, seen in stops if not seen] == []


def test_every_file_is_downloaded_whole(visit: Visit, tmp_path: Path):
    for name in KINDS:
        with visit.page.expect_download() as waited:
            visit.page.click(f".pd-files a[download='{name}']")
        waited.value.save_as(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 200
    assert np.load(tmp_path / "depth.npy").shape == (480, 640)
    assert json.loads((tmp_path / "prediction.json").read_text())["frame"] == "warehouse"


def test_dragging_turns_both_clouds_and_zero_brings_them_back(visit: Visit):
    visit.after(lambda: visit.choose("pd-domain", "hall"))
    visit.cloud().first.scroll_into_view_if_needed()
    before = [visit.pixels(n) for n in (0, 1)]
    assert all(colours > 200 for _, colours in before)
    assert before[0] != before[1]
    box = visit.cloud().first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    visit.page.mouse.move(x, y)
    visit.page.mouse.down()
    visit.page.mouse.move(x + 90, y + 30, steps=4)
    visit.page.mouse.up()
    turned = [visit.pixels(n) for n in (0, 1)]
    assert all(a != b for a, b in zip(before, turned, strict=True))
    visit.cloud().first.press("0")
    assert [visit.pixels(n) for n in (0, 1)] == before


def test_another_example_and_another_domain_change_the_pictures_at_once(visit: Visit):
    first = visit.page.locator(".pd-pictures img").first.get_attribute("src")
    visit.page.locator("[data-world=office]").press("Enter")
    visit.page.wait_for_selector(".pd-result[data-frame=office]")
    assert visit.page.locator(".pd-pictures img").first.get_attribute("src") != first
    assert visit.page.locator("[aria-pressed=true]").get_attribute("data-world") == "office"
    assert visit.answer().startswith("right: domain hall: ")
    visit.after(lambda: visit.choose("pd-domain", "base: the network as it is"))
    assert visit.answer().startswith("right: base network: ")
    assert visit.page.locator(".pd-compare option").count() == 2
    assert visit.complaints == []


def test_own_files_are_completed_and_mistakes_are_explained(browser, site: Site, tmp_path: Path):
    frame = example("office")
    images.write_image(tmp_path / "picture.png", frame.image)
    images.write_depth(tmp_path / "points.png", frame.sparse_depth, "mm")
    visit = Visit(browser, site)
    drop = {part: visit.page.locator(f"#pd-{part} input[type=file]") for part in ("image", "sparse")}
    visit.after(lambda: drop["image"].set_input_files(str(tmp_path / "picture.png")))
    assert "Drop its sparse depth" in visit.page.locator(".pd-error").inner_text()
    assert visit.page.locator(".pd-pictures").count() == 0, "the example's results stay"
    assert visit.page.locator("[aria-pressed=true]").count() == 0
    visit.after(lambda: drop["sparse"].set_input_files(str(tmp_path / "points.png")))
    assert "fx, fy, cx, cy" in visit.page.locator(".pd-error").inner_text()
    camera = visit.page.locator("#pd-camera input, #pd-camera textarea")
    camera.fill(answers.intrinsics_text(frame))
    visit.after(lambda: camera.press("Enter"))
    assert visit.captions()[1] == f"{int((frame.sparse_depth > 0).sum()):,} sparse points"
    assert "Sparse depth read as mm" in visit.page.locator(".pd-result p").first.inner_text()
    assert "100 % of the points lie in its range" in visit.page.locator(".pd-result p").first.inner_text()
    visit.after(lambda: visit.choose("pd-unit", "kitti"))
    assert "read as mm: 1.92 to 4.10 m" in visit.page.locator(".pd-error").inner_text()
    visit.after(lambda: visit.choose("pd-unit", "mm"))
    assert visit.page.locator(".pd-pictures").count() == 1
    camera.fill("ninety")
    visit.complete()
    assert "'ninety' is not a number" in visit.page.locator(".pd-error").inner_text()
    visit.pick("room")
    assert visit.page.locator(".pd-pictures").count() == 1
    assert not camera.is_editable()
    assert visit.complaints == []
    visit.page.close()


def test_a_page_cannot_fetch_from_elsewhere(visit: Visit):
    result = visit.page.evaluate("() => fetch('http://127.0.0.1:9/').then(() => 'sent', e => e.name)")
    assert result == "TypeError"
    assert any("Content Security Policy" in c for c in visit.complaints)
    visit.complaints.clear()


@pytest.mark.parametrize(("width", "height", "scheme"), [(390, 844, "light"), (390, 844, "dark"), (1320, 860, "dark")])
def test_the_first_screen_has_examples_and_drop_zones_and_nothing_sticks_out(browser, site, width, height, scheme):
    visit = Visit(browser, site, width, height, scheme)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    for part in (".pd-examples", "#pd-image", "#pd-sparse"):
        box = visit.page.locator(part).bounding_box()
        assert box["y"] + box["height"] <= height, f"{part} is below the first screen"
    dark = visit.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).every(v => v < 60)")
    assert dark == (scheme == "dark")
    visit.page.wait_for_selector("iframe.pd-cloud", state="attached")
    assert visit.pixels()[1] > 200, "the cloud is empty before one has scrolled to it"
    assert visit.cloud().first.evaluate("c => getComputedStyle(c).touchAction") == "pan-y", (
        "a finger cannot scroll past"
    )
    assert visit.complaints == []
    visit.page.close()


def test_two_fingers_zoom_and_one_turns(visit: Visit):
    visit.pick("warehouse")
    canvas = visit.cloud().first
    canvas.scroll_into_view_if_needed()
    before = visit.pixels()
    box, screen = canvas.bounding_box(), visit.page.context.new_cdp_session(visit.page)

    def touch(kind: str, *places: int) -> None:
        points = [{"x": box["x"] + x, "y": box["y"] + 100, "id": number} for number, x in enumerate(places)]
        screen.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})

    for kind, places in (("Start", (80,)), ("Start", (80, 140)), ("Move", (80, 200)), ("Move", (80, 240)), ("End", ())):
        touch(kind, *places)
    wider = visit.pixels()
    assert wider != before
    for kind, places in (("Start", (80,)), ("Move", (140,)), ("Move", (180,)), ("End", ())):
        touch(kind, *places)
    assert visit.pixels() != wider
    canvas.press("0")
    assert visit.pixels() == before


def status(request: urllib.request.Request) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return opener.open(request, timeout=60).status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_server_refuses_other_hosts_large_bodies_paths_and_large_files(site: Site):
    assert status(urllib.request.Request(site.address)) == 200
    assert status(urllib.request.Request(site.address, headers={"Host": "evil.example"})) == 400
    post = site.address + "gradio_api/queue/join"
    assert status(urllib.request.Request(post, data=b"{}", headers={"Content-Length": str(10**9)})) == 413
    for path in ("gradio_api/file=/etc/passwd", "gradio_api/file=../../../../etc/passwd"):
        assert status(urllib.request.Request(site.address + path)) in (400, 403, 404)
    data = (
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
        + bytes(21 * 2**20)
        + b"\r\n--x--\r\n"
    )
    upload = urllib.request.Request(
        site.address + "gradio_api/upload", data=data, headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert status(upload) == 413
    assert sum(f.stat().st_size for f in site.folder.rglob("*") if f.is_file()) < 20 * 2**20


PATHS = (
    *("/", "/config", "/%ff%fe", "/assets/..%2f..%2fetc/passwd", "/gradio_api/upload", "/gradio_api/queue/join"),
    *("/gradio_api/file=x", "/gradio_api/file=%00", "/gradio_api/run/predict", "/gradio_api/call/x"),
    *("/gradio_api/queue/data", "/gradio_api/queue/data?session_hash=" + "a" * 3000),
    "/gradio_api/upload_progress?upload_id=%00",
)
BODIES = (
    *(b"", b"{}", b'{"data": []}', b"[" * 20000),
    *(b"\xff\xfe", b'{"data": null, "fn_index": 1e99}', b'{"fn_index": -1, "data": []}'),
    b'{"data": [[]], "fn_index": 0, "session_hash": {"a": 1}}',
    b"--x\r\nContent-Disposition: form-data\r\n\r\n--x--",
    b'--x\r\nContent-Disposition: form-data; name="files"; filename="../../x\x00.png"\r\n\r\nhello\r\n--x--\r\n',
)


def hostile(address: str, count: int, seed: int) -> dict[int, int]:
    """Requests with wrong methods, paths, headers and bodies, as bytes on the wire; counts the answers by status."""
    dice, found = random.Random(seed), {}
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    kinds = [["Content-Type: application/json"], ["Content-Type: multipart/form-data; boundary=x"], []]
    more = [[], [], [], ["Origin: http://evil.example"], ["Cookie: " + "a=b;" * 200]]
    for _ in range(count):
        body = dice.choice(BODIES)
        lines = [f"{dice.choice(['GET', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'])} {dice.choice(PATHS)} HTTP/1.1"]
        lines += [f"Host: {dice.choice([f'{host}:{port}'] * 6 + ['evil.example'])}", "Connection: close"]
        lines += [*dice.choice(kinds), *dice.choice(more), f"Content-Length: {len(body)}", "", ""]
        with socket.create_connection((host, int(port)), timeout=5) as wire, contextlib.suppress(TimeoutError):
            wire.sendall("\r\n".join(lines).encode() + body)
            head = wire.recv(64)  # a stream of events waits for some, and the time is up
            code = int(head.split()[1]) if head.startswith(b"HTTP/") else 0
            found[code] = found.get(code, 0) + 1
    return found


def test_hostile_requests_are_never_answered_with_500(site: Site):
    found = hostile(site.address, 40, 1)
    assert not [code for code in found if code >= 500], found
    assert status(urllib.request.Request(site.address)) == 200


@pytest.mark.slow
def test_a_thousand_hostile_requests_are_never_answered_with_500(site: Site):
    found = hostile(site.address, 1000, 2)
    print(found)
    assert not [code for code in found if code >= 500], found
    assert status(urllib.request.Request(site.address)) == 200


def test_the_command_ends_by_a_signal_with_code_0_and_leaves_no_folder(tmp_path: Path):
    ProtoDepth(Lite((0.1, 8.0), (4, 6, 8, 10, 12), (4, 4, 6, 6, 8))).save_pretrained(tmp_path / "m")
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-m", "protodepth", "app", "--model", str(tmp_path / "m")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as page:
        assert "http://127.0.0.1:" in page.stdout.readline()
        assert [p.name for p in (tmp_path / "temporary").iterdir() if p.name.startswith("protodepth-app-")]
        page.send_signal(signal.SIGTERM)
        assert page.wait(60) == 0
    assert not [p.name for p in (tmp_path / "temporary").iterdir() if p.name.startswith("protodepth-app-")]
