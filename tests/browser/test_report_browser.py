"""The report in a real browser: it draws, it turns, it switches, it asks for nothing, it fits a phone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import report_fakes as fakes
from helpers.canvas import PIXELS
from protodepth.report import bench_page, overview, run
from unit.report.test_overview import sections

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run.write_run(tmp_path_factory.mktemp("run"), fakes.document(), fakes.samples((64, 96), 1))


class Visit:
    """An open page that remembers what it asked for and complained about."""

    def __init__(self, browser, path: Path, width: int, height: int, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.goto(path.as_uri())
        self.settle()

    def settle(self) -> None:
        """Two frames: one in which the drawing is asked for and one in which it is done."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def pixels(self, name: str = "canvas-right") -> tuple[int, int]:
        self.settle()
        checksum, colours = self.page.locator(f"#{name}").evaluate(PIXELS)
        return checksum, colours


@pytest.fixture
def laptop(browser, path: Path) -> Iterator[Visit]:
    visit = Visit(browser, path, 1400, 900)
    yield visit
    visit.page.close()


def drag(visit: Visit, dx: int, dy: int) -> None:
    canvas = visit.page.locator("#canvas-left")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    visit.page.mouse.move(x, y)
    visit.page.mouse.down()
    visit.page.mouse.move(x + dx, y + dy, steps=4)
    visit.page.mouse.up()


def test_the_page_opens_without_complaints_and_without_any_request_but_itself(laptop: Visit, path: Path):
    laptop.page.evaluate(
        "() => Promise.all([...document.images].map(i => i.decode().catch(() => i.src && Promise.reject(i.alt))))"
    )
    assert laptop.complaints == []
    assert [u for u in laptop.requests if not u.startswith("data:")] == [path.as_uri()]
    assert laptop.page.locator("nav a").count() == 8


def test_the_policy_of_the_page_forbids_the_network(laptop: Visit):
    result = laptop.page.evaluate("() => fetch('http://127.0.0.1:9/').then(() => 'sent', e => e.name)")
    assert result == "TypeError"
    assert any("Content Security Policy" in c for c in laptop.complaints)


def test_both_point_clouds_are_drawn_and_a_drag_turns_both(laptop: Visit):
    before = {name: laptop.pixels(name) for name in ("canvas-left", "canvas-right")}
    assert all(colours > 200 for _, colours in before.values())
    assert before["canvas-left"][0] != before["canvas-right"][0]  # finetuned and ProtoDepth differ
    drag(laptop, 90, 25)
    assert all(laptop.pixels(name)[0] != before[name][0] for name in before)
    laptop.page.click("#cloud-reset")
    assert laptop.pixels("canvas-left") == before["canvas-left"]


def test_wheel_and_keys_move_the_cloud_and_zero_brings_it_back(laptop: Visit):
    first = laptop.pixels()
    laptop.page.locator("#canvas-left").hover()
    laptop.page.mouse.wheel(0, -300)
    zoomed = laptop.pixels()
    laptop.page.focus("#canvas-right")
    laptop.page.keyboard.press("ArrowLeft")
    turned = laptop.pixels()
    assert len({first, zoomed, turned}) == 3
    laptop.page.keyboard.press("0")
    assert laptop.pixels() == first


def test_frame_method_colour_and_mask_each_change_the_picture(laptop: Visit):
    seen = [laptop.pixels()]
    laptop.page.select_option("#cloud-right", label="Ground truth")
    seen.append(laptop.pixels())
    laptop.page.select_option("#cloud-sample", index=2)
    seen.append(laptop.pixels())
    laptop.page.select_option("#cloud-colour", "depth")
    seen.append(laptop.pixels())
    laptop.page.select_option("#cloud-right", label="ProtoDepth-A")
    laptop.page.uncheck("#cloud-known")
    seen.append(laptop.pixels())
    assert len(set(seen)) == 5
    laptop.page.check("#cloud-known")
    laptop.page.select_option("#cloud-right", label="Ground truth")
    laptop.page.select_option("#cloud-colour", "error")
    assert "m or more" in laptop.page.inner_text("#cloud-scale")
    assert laptop.pixels()[1] == 2  # ground truth has no error: background and the darkest colour alone


def test_the_metric_switch_changes_tables_and_charts_together(laptop: Visit):
    shown = laptop.page.locator(".by-metric:visible")
    assert shown.evaluate_all("es => es.map(e => e.dataset.metric)") == ["mae", "mae"]
    laptop.page.locator("#curves button", has_text="iRMSE").click()
    assert shown.evaluate_all("es => es.map(e => e.dataset.metric)") == ["irmse", "irmse"]
    pressed = laptop.page.locator("[data-set-metric][aria-pressed=true]")
    assert pressed.all_inner_texts() == ["iRMSE", "iRMSE"]
    assert "iRMSE on street (1/km)" in shown.nth(1).inner_text()


def test_a_picture_opens_large_and_closes_again_with_the_keyboard(laptop: Visit):
    first = laptop.page.locator(".pic").first
    small = first.bounding_box()["width"]
    first.press("Enter")
    assert laptop.page.locator("#zoom img").bounding_box()["width"] > 2 * small
    laptop.page.keyboard.press("Escape")
    assert not laptop.page.locator("#zoom").is_visible()


@pytest.mark.parametrize(
    ("width", "height", "scheme"), [(390, 844, "light"), (390, 844, "dark"), (1400, 900, "dark"), (768, 1024, "light")]
)
def test_nothing_sticks_out_of_the_page_at_any_width(browser, path: Path, width, height, scheme):
    visit = Visit(browser, path, width, height, scheme)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    table = visit.page.locator("#scores .scroll")
    assert table.bounding_box()["width"] <= width
    if width < 900:
        assert table.evaluate("e => e.scrollWidth > e.clientWidth")  # the table scrolls inside
    paper, ink = visit.page.evaluate(
        "() => { const s = getComputedStyle(document.body); return [s.backgroundColor, "
        "s.color].map(c => +c.match(/[0-9]+/)[0]); }"
    )
    assert (paper < ink) == (scheme == "dark")
    assert visit.complaints == []
    visit.page.close()


def test_row_names_stay_in_sight_when_a_wide_table_is_scrolled_on_a_phone(browser, path: Path):
    visit = Visit(browser, path, 390, 844, "dark")
    table = visit.page.locator("#scores .scroll")
    name = table.locator("tbody th").first
    before = name.bounding_box()["x"]
    table.evaluate("e => { e.scrollLeft = 150; }")
    assert table.evaluate("e => e.scrollLeft") == 150
    assert abs(name.bounding_box()["x"] - before) <= 1
    assert "stronger the colour" in visit.page.locator("#matrix").inner_text()  # in the dark it is the brighter cell
    visit.page.close()


def test_the_opening_of_a_bench_page_can_be_read_on_a_phone(browser, tmp_path: Path):
    bench_page.write(tmp_path, [first := overview.opening(sections()), *sections()], {})
    assert first is not None
    visit = Visit(browser, tmp_path / "report.html", 390, 844, "dark")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    picture = visit.page.locator("#overview svg")
    assert picture.bounding_box()["width"] <= 390
    letters = visit.page.locator("#overview svg text").evaluate_all("all => all.map(e => e.getBoundingClientRect())")
    assert min(min(box["width"], box["height"]) for box in letters) > 9  # the axis' name stands upright
    right = picture.bounding_box()["x"] + picture.bounding_box()["width"]
    assert max(box["x"] + box["width"] for box in letters) <= right
    assert visit.complaints == []
    visit.page.close()


def test_two_fingers_zoom_on_a_touch_screen(browser, path: Path):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.locator("#canvas-left").scroll_into_view_if_needed()
    box = page.locator("#canvas-left").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    touch = context.new_cdp_session(page)
    before = page.locator("#canvas-left").evaluate(PIXELS)
    for kind, gap in (("touchStart", 20), ("touchMove", 60), ("touchMove", 90)):
        points = [{"x": x - gap, "y": y, "id": 1}, {"x": x + gap, "y": y, "id": 2}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.locator("#canvas-left").evaluate(PIXELS) != before
    context.close()
