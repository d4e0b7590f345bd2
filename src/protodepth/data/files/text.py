"""Text, JSON and arrays from strangers: bad bytes become one sentence that names the file and the place."""

import json
import math
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.errors import DamagedFileError, DataError, MissingFileError

# what code meets that believes a damaged file: wrong kinds, missing entries, lengths and numbers beyond reason
DAMAGE = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, RecursionError, EOFError),
    *(OSError, struct.error, zlib.error, zipfile.BadZipFile, NotImplementedError, AssertionError),
)
_PLAIN = re.compile(r"[0-9+\-.eE]*")
_WORD = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)


@contextmanager
def reading(where: object) -> Iterator[None]:
    """Whatever damage does to the code inside is an error of the data, with its place."""
    try:
        yield
    except DAMAGE as error:
        reason = next(iter(str(error).splitlines()), "")[:200]
        raise DataError(
            f"{where} cannot be read ({type(error).__name__}: {reason}): damaged or of another format, copy it again"
        ) from error


def read_text(path: Path) -> str:
    """A text file in UTF-8; a byte that is none is named with its line."""
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is no text in UTF-8: save the file as UTF-8"
        ) from None


def number(word: str) -> float:
    """A number as files write them; Python alone would also take ``1_0`` for ten.

    >>> number("-1.5e3"), number("nan")
    (-1500.0, nan)
    """
    if not _WORD.fullmatch(word):
        raise ValueError(f"{word[:40]!r} is not a number")
    return float(word)


def numbers(words: Sequence[str]) -> list[float]:
    """A line of numbers as files write them; a file of poses has a hundred thousand of them.

    >>> numbers(["1", "-.5", "1e3"])
    [1.0, -0.5, 1000.0]
    """
    if _PLAIN.fullmatch("".join(words)):  # of these letters Python reads what ``number`` reads
        return [float(word) for word in words]
    return [number(word) for word in words]


def parse_json(text: str | bytes, where: object) -> Any:
    """JSON from a stranger's text; what is damaged is an error that names the place."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not valid JSON ({error})") from None


def load_array(path: Path) -> np.ndarray:
    """A .npy file of numbers.  Its header is compared with the size of the file before memory is taken."""
    path = Path(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(2) == b"PK":
                raise DataError(f"{path} is an archive of arrays (.npz): save the one array with numpy.save")
            file.seek(0)
            version = np.lib.format.read_magic(file)
            shape, _, dtype = _header(file, version)
            need = math.prod(shape) * dtype.itemsize
            if dtype.kind not in "uif":
                raise ValueError(f"it holds {dtype}, expected numbers")
            if file.tell() + need != size:
                raise DamagedFileError(
                    f"{path} promises {dtype} {'x'.join(map(str, shape))} ({need} bytes) and has {size - file.tell()}: "
                    "expected a whole array of numbers"
                )
            file.seek(0)
            return np.load(file, allow_pickle=False)
    except FileNotFoundError:
        raise MissingFileError(f"{path} does not exist") from None
    except (*DAMAGE, SyntaxError, tokenize.TokenError) as error:  # its header is written in Python
        raise DataError(f"{path} is not a plain NumPy array ({error})") from None


def _header(file: Any, version: tuple[int, int]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"format {version[0]}.{version[1]}, expected 1.0 or 2.0")
    return read[version](file)
