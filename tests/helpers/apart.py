"""A function in a process of its own, so that a crash of a library is noticed and does not end the tests."""

import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attack_apart(attack: Callable[..., None], folder: Path, name: str, *settings: float) -> dict[str, int]:
    """What ``attack(folder, name, *settings, say)`` says by ``say.send``; the folder is gone after success."""
    folder.mkdir()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=attack, args=(folder, name, *settings, there))
    child.start()
    there.close()
    seen: Any
    try:
        seen = here.recv()
    except EOFError:
        seen = "nothing"
    child.join()
    assert child.exitcode == 0, f"{name}: the reader ended with {child.exitcode}, said {seen}"
    assert isinstance(seen, dict), seen
    shutil.rmtree(folder)
    return seen
