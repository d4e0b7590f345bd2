"""Replacing a model's or domain's folder, all or nothing: which files are ours, what stays, what a kill left behind.

What is ours is what the folder's own description lists: ``config.json`` of a model, ``meta.json`` of a domain.
Every other file stays.
"""

import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protodepth.errors import CheckpointError
from protodepth.storage.files import check_description, sync_folder
from protodepth.storage.locks import busy, writing
from protodepth.storage.paths import is_name, is_outside

DESCRIPTIONS = {"model": "config.json", "domain": "meta.json"}
TENSORS = {
    "model": ("backbone.safetensors", "pose.safetensors"),
    "domain": ("weights.safetensors", "statistics.safetensors"),
}
CARD, OUR_CARD = "README.md", b"---\nlibrary_name: protodepth"


def described(folder: Path, kind: str) -> dict[str, Any] | None:
    """Of a folder that may be replaced: its description, if this program wrote it as this kind; None if not.

    One that was changed is an error: what it lists as ours may not be.
    """
    path = folder / DESCRIPTIONS[kind]
    try:
        meta = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):  # a disk that fails is another matter
        return None
    if not isinstance(meta, dict) or meta.get("kind") != kind or "format_version" not in meta:
        return None
    check_description(path, kind, meta)
    return meta


def _ours(folder: Path, kind: str) -> set[Path]:
    """The files of a folder that its description lists, relative to it."""
    meta = described(folder, kind)
    if meta is None:
        return set()
    listed = meta["sha256"] if isinstance(meta.get("sha256"), dict) else {}
    paths = {Path(DESCRIPTIONS[kind])} | {Path(name) for name in TENSORS[kind] if name in listed}
    if kind == "model":
        paths |= {Path(CARD)} if _is_our_card(folder / CARD, listed.get(CARD)) else set()
        for name in domain_names(meta):
            place = Path("domains") / name
            if not is_outside(folder / place, folder):
                paths |= {place / file for file in _ours(folder / place, "domain")}
    return paths


def domain_names(meta: dict[str, Any]) -> list[str]:
    """Of a folder that may be replaced: the domains that its description lists, without what can be no name."""
    listed = meta.get("domains")
    return [name for name in listed if is_name(name)] if isinstance(listed, list) else []


def _is_our_card(file: Path, sha256: object) -> bool:
    """Whether a card is as it was written; one that somebody edited is theirs.

    Folders of earlier versions state no checksum for it.
    """
    try:
        data = file.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return False
    return hashlib.sha256(data).hexdigest() == sha256 if isinstance(sha256, str) else data.startswith(OUR_CARD)


def card_is_edited(folder: Path) -> bool:
    """Whether the card in a model's folder is somebody's own now: then it is not replaced."""
    return (folder / CARD).exists() and Path(CARD) not in _ours(folder, "model")


def _others(folder: Path, kind: str) -> list[Path]:
    """What stands in a folder and is not ours, relative to it: files, links, and folders without anything in them."""
    mine, foreign = _ours(folder, kind), []
    for place, folders, names in os.walk(folder):
        here = Path(place).relative_to(folder)
        links = [name for name in folders if (folder / here / name).is_symlink()]
        foreign += [here / name for name in (*names, *links) if here / name not in mine]
        foreign += [here] if not names and not folders and here.parts and here != Path("domains") else []
    return sorted(foreign)


def check_replaceable(target: Path, kind: str = "model") -> None:
    """Refuse a target that this program did not write as the same kind of folder."""
    names = sorted(p.name for p in target.iterdir()) if target.is_dir() else [target.name] if target.exists() else []
    if names and not described(target, kind):
        raise CheckpointError(
            f"{target} exists and is not a protodepth folder with a {kind} (it has {names[0]!r}): give another name, "
            "nothing was overwritten"
        )


def check_room(target: Path, name: str) -> None:
    """Before a folder is replaced: refuse a name whose files would meet files of somebody else in it."""
    there = {Path("domains") / name / file for file in (DESCRIPTIONS["domain"], *TENSORS["domain"])}
    met = sorted(there & set(_others(target, "model"))) if target.is_dir() else []
    if met:
        raise CheckpointError(f"{target / met[0]} is not of this model and would be overwritten: move it away first")


def _keep_others(target: Path, fresh: Path, kind: str) -> None:
    """Take what is not ours over into the new folder.  A link costs no space and no time."""
    for path in _others(target, kind):
        source, copy = target / path, fresh / path
        if (copy.exists() or copy.is_symlink()) and not (copy.is_dir() and source.is_dir()):
            raise CheckpointError(f"{source} is not of this program and would be overwritten: move it away first")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copy.symlink_to(source.readlink())
        elif source.is_dir():
            copy.mkdir(exist_ok=True)
        else:
            try:
                os.link(source, copy)
            except OSError:  # a file system without hard links
                shutil.copy2(source, copy)


def _leftovers(target: Path) -> list[Path]:
    """What a killed program left beside a folder: ``.old`` was moved aside, ``.tmp`` is half written."""
    if not target.parent.is_dir():
        return []
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.(old|tmp)")
    return sorted(p for p in target.parent.iterdir() if name.fullmatch(p.name) and not p.is_symlink())


def recover(target: Path) -> None:
    """Put back a folder that was moved aside by a program that was killed before the new one took its place.

    A program that lives is about to put the new one there: that takes no time worth mentioning.
    """
    for _ in range(100):
        if target.exists() or not _leftovers(target) or not busy(target):
            break
        time.sleep(0.02)
    for path in _leftovers(target) if not target.exists() else ():
        if path.suffix == ".old":
            path.rename(target)
            return


@contextmanager
def replacing_folder(target: Path, kind: str) -> Iterator[Path]:
    """Build a folder under a temporary name; it takes the target's place only when complete.

    A failure at any point leaves the old folder in place;
    after a kill between the two renames ``recover`` puts it back.
    """
    target = target.resolve()
    with writing(target):
        yield from _replacing(target, kind)


def _replacing(target: Path, kind: str) -> Iterator[Path]:
    recover(target)
    check_replaceable(target, kind)
    for path in _leftovers(target):
        shutil.rmtree(path, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    tag = uuid.uuid4().hex[:8]
    fresh, old = target.with_name(f".{target.name}.{tag}.tmp"), target.with_name(f".{target.name}.{tag}.old")
    try:
        fresh.mkdir()
        yield fresh
        if target.exists():
            _keep_others(target, fresh, kind)
            target.rename(old)
        fresh.rename(target)
        sync_folder(target.parent)
    finally:
        if old.exists() and not target.exists():
            old.rename(target)
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def discard(folder: Path) -> None:
    """Remove a folder that is no longer needed, if it is there: it goes as a whole, so that a kill leaves no half of it
    under its name; what such a kill leaves is removed by the next call.
    """
    if folder.is_dir():
        folder.rename(folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp"))
    for path in _leftovers(folder):
        shutil.rmtree(path, ignore_errors=True)
