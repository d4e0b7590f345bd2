"""The page of bench real in a browser: it asks for nothing, complains of nothing, and its tables fit a phone."""

from pathlib import Path

import numpy as np
import pytest

from helpers.real_rows import document
from protodepth.report import real_page
from protodepth.report.bench_page import Figure
from protodepth.report.pictures import jpeg

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    picture = jpeg(np.random.default_rng(0).integers(0, 255, (300, 1280, 3)).astype(np.uint8))
    figure = Figure("desk-500", "desk, 500: depth and error", jpeg=picture)
    return real_page.write(tmp_path_factory.mktemp("real"), document(), {"command": "c"}, {"desk": [figure]})[0]


@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_stands_alone_and_is_no_wider_than_the_screen(browser, path: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    page.on("pageerror", lambda e: said.append(str(e)))
    page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
    page.goto(path.as_uri())
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert said == []
    assert page.locator("h1").inner_text() == "Real sensors"
    assert page.locator("nav a").count() >= 3
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    picture = page.locator("figure.picture img")
    picture.scroll_into_view_if_needed()
    assert picture.evaluate("e => e.complete && e.naturalWidth") == 1280
    assert picture.bounding_box()["width"] <= width
    page.close()
