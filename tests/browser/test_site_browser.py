"""The documentation site, opened from the disk as `make docs` says: its search finds, and nothing sticks out."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from helpers.documents import ROOT

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed: pip install 'protodepth[docs]'"),
]
WAIT = 60_000  # milliseconds


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_the_search_finds_from_the_disk_and_a_result_leads_to_its_page(browser, site, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.set_default_timeout(WAIT)
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    page.goto((site / "index.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width < 960:
        page.click("label.md-header__button[for=__search]")
    page.locator(".md-search__input").press_sequentially("millimetres")
    result = page.locator(".md-search-result__link").first
    result.wait_for()
    place = result.evaluate("e => e.href")
    assert place.split("?")[0].split("#")[0] != page.url, "a page finds itself alone"
    assert "millimetres" in result.inner_text().lower()
    result.click()
    page.wait_for_url(place)
    assert "millimetres" in page.locator("article").inner_text().lower()
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
    assert complaints == []
    page.close()


@pytest.mark.parametrize("name", ["index", "verbs", "own_data", "gallery", "reproducing", "reference/model"])
def test_no_page_is_wider_than_a_phone(browser, site, name):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto((site / f"{name}.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)") == []
    page.close()
