"""Libraries that print lines of their own about a file, beside the error that they raise."""

import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterator

_ONE = threading.Lock()  # both streams belong to the whole process


@contextlib.contextmanager
def without_lines(*starts: str) -> Iterator[None]:
    """While this lasts, lines that begin so reach neither stdout (of Python) nor stderr (of C, too).

    What other threads print meanwhile is printed at the end.
    """
    with _ONE, _without_errors(starts):
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                yield
        finally:
            sys.stdout.write(_others(printed.getvalue(), starts))


@contextlib.contextmanager
def _without_errors(starts: tuple[str, ...]) -> Iterator[None]:
    try:
        before = os.dup(2)
    except OSError:  # closed: nothing can be printed
        yield
        return
    kept = os.memfd_create("stderr") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(kept, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        with os.fdopen(kept, "r+", errors="surrogateescape") as file:
            file.seek(0)
            os.write(2, _others(file.read(), starts).encode(errors="surrogateescape"))


def _others(text: str, starts: tuple[str, ...]) -> str:
    """
    >>> _others("a.exr: bad\\nfrom elsewhere\\n", ("a.exr: ",))
    'from elsewhere\\n'
    """
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(starts))
