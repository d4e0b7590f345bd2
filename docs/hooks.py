"""What mkdocs calls while it builds the site: links that leave docs/, and the formulas of docstrings."""

import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml import converter
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = re.compile(r"\]\((\.\./[^)#\s]+)((?:#[\w-]*)?)\)")
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".json": "json", ".jsonl": "json"}


def on_files(files: Files, config: Any) -> Files:
    """A page for each file of the repository that a document links to: a reader of the site has no checkout."""
    pages = [f for f in files.documentation_pages() if f.generated_by is None]
    linked = {target(f.src_uri, link) for f in pages for link, _ in OUTSIDE.findall(f.content_string)}
    for path in sorted(p for p in linked if not p.startswith("docs/")):
        files.append(File.generated(config, page_of(path), content=shown(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    here = page.file.src_uri

    def inside(match: re.Match[str]) -> str:
        path = target(here, match[1])
        if path.startswith("docs/"):
            return match[0]
        place = page_of(path)
        return f"]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{match[2]})"

    return OUTSIDE.sub(inside, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """``:math:`` roles become MathML, which browsers draw by themselves."""
    return re.sub(r":math:<code>(.*?)</code>", lambda m: converter.convert(plain(m[1])), html, flags=re.DOTALL)


def target(page: str, link: str) -> str:
    """The path in the repository that a link of a page leads to."""
    return posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))


def page_of(path: str) -> str:
    return f"source/{path}.md"


def shown(path: str) -> str:
    """A file as a page: documents without their links, code in its colours, a folder as a list."""
    place = ROOT / path
    if place.is_dir():
        return f"# {path}\n\n" + "".join(f"- `{p.name}`\n" for p in sorted(place.iterdir()) if p.name[0] not in "._")
    text = place.read_text(encoding="utf-8")
    if place.suffix == ".md":
        return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)  # its own links lead further out
    return f"# {path}\n\n````{LANGUAGES.get(place.suffix, 'text')}\n{text}\n````\n"


def plain(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
