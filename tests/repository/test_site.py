"""The documentation site: every page is in its menu, every public name on a page of the reference, every link leads
to a heading that is there; built, it asks nothing of the network.
"""

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import protodepth
from helpers.documents import DOCUMENTS, ROOT
from protodepth.cli.main import COMMANDS

DOCS = ROOT / "docs"
PAGES = sorted(str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md"))
REFERENCE = "\n".join(p.read_text() for p in sorted((DOCS / "reference").glob("*.md")))
ANCHOR = re.compile(r"\]\(([^)#\s]*)#([\w-]+)\)")


def menu() -> list[str]:
    """The pages that mkdocs.yml lists; read as text, since the tests do without mkdocs."""
    return re.findall(r"^ +- [^:\n]+: ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)


def slug(heading: str) -> str:
    """The anchor of a heading, as mkdocs and GitHub write it."""
    words = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", words))


def anchors(path: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = {slug(h) for h in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
    return found | {re.sub("-+", "-", a) for a in found}


def test_every_page_is_in_the_menu_once() -> None:
    assert sorted(menu()) == PAGES


def test_every_link_to_a_heading_leads_there() -> None:
    for here in (ROOT / document for document in DOCUMENTS):
        for target, anchor in ANCHOR.findall(here.read_text()):
            if "://" not in target:
                place = (here.parent / target) if target else here
                assert anchor in anchors(place), f"{here.name} -> {target}#{anchor}"


def test_a_heading_that_is_gone_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# One `two`, three\n\n```\n# no heading\n```\n")
    assert anchors(tmp_path / "a.md") == {"one-two-three"}


@pytest.mark.parametrize("name", [n for n in protodepth.__all__ if n != "__version__"])
def test_every_public_name_is_on_a_page_of_the_reference_and_each_of_its_methods_has_a_docstring(name: str) -> None:
    thing = getattr(protodepth, name)
    assert re.search(rf"^::: {re.escape(thing.__module__)}\.{name}$", REFERENCE, re.MULTILINE), thing.__module__
    assert inspect.getdoc(thing)
    assert [n for n, part in members(thing).items() if not (inspect.getdoc(part) or is_one_expression(part))] == []


def is_one_expression(part: Any) -> bool:
    """``return x``: the reference shows the signature, and there is nothing else to say."""
    function = part.fget if isinstance(part, property) else getattr(part, "__func__", part)
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    return isinstance(tree, ast.FunctionDef) and len(tree.body) == 1 and isinstance(tree.body[0], ast.Return)


def members(thing: Any) -> dict[str, Any]:
    """What a class itself offers: its public methods and properties."""
    if not inspect.isclass(thing):
        return {}
    own = {n: p for n, p in vars(thing).items() if not n.startswith("_")}
    kinds = (property, classmethod, staticmethod)
    return {n: p for n, p in own.items() if inspect.isfunction(p) or isinstance(p, kinds)}


def test_every_verb_has_a_line_that_says_when_it_is_needed() -> None:
    text = (DOCS / "verbs.md").read_text()
    assert [name for name in COMMANDS if f"`protodepth {name}`" not in text] == []


def test_the_glossary_is_in_order_and_has_the_nouns_of_the_paper() -> None:
    words = re.findall(r"^\*\*([^*]+)\*\*$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert [w.lower() for w in words] == sorted(w.lower() for w in words)
    assert {"Domain", "Prototype set", "Descriptor", "Average forgetting", "SPTO", "Agnostic setting"} <= set(words)


def test_the_search_of_a_site_on_the_disk_has_a_worker_of_its_own() -> None:
    """The plugin ``offline`` fetches one unless a script of this name is given."""
    text = (ROOT / "mkdocs.yml").read_text()
    assert "\n  - offline\n" in text
    (script,) = re.findall(r"polyfills: \[([\w.-]*iframe-worker[\w.-]*)\]", text)
    assert (DOCS / script).is_file()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed: pip install 'protodepth[docs]'")
def test_the_site_is_built_without_a_warning_and_its_pages_fetch_nothing(tmp_path: Path) -> None:
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    fetched = re.compile(r"<(?:script|img|iframe)[^>]+src=.?(?:https?:)?//|<link[^>]+href=.?(?:https?:)?//|@import")
    assert [p.name for p in pages if fetched.search(p.read_text())] == []
    assert (tmp_path / "reference" / "method.html").read_text().count("<math") > 10
