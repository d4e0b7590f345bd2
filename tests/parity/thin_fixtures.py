"""The fixtures of tests/parity/data from the full set: ``python tests/parity/thin_fixtures.py FULL tests/parity/data``.

Inputs, weights and scalars stay whole.  Of a large output or gradient about ``LIMIT`` places stay, in full precision,
with the mean, the spread and the largest value of all of them (``key__sample``, ``key__stat`` and the rule in the
JSON's ``sampled``, as the full set does for its largest arrays).  An array that another one repeats is named, not
stored (the JSON's ``same``): all networks see the same frames.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 500  # places of an array
OUTPUTS = ("out/", "grad/")  # what is compared; the rest is what the comparison starts from
WHOLE = ("outlier", "project_xy", "backproject_points")  # compared pixel by pixel, by tests that need all of them

Arrays = dict[str, np.ndarray]
Places = dict[tuple[Any, ...], tuple[str, str]]  # what an array holds -> (fixture, key) that has it


def stride(count: int, shape: Sequence[int], limit: int = LIMIT) -> int:
    """The smallest step that leaves at most ``limit`` of ``count`` places and shares no factor with a side of the
    array, so that no row, column or channel is left out.

    >>> stride(2 * 384 * 4 * 6, (2, 384, 4, 6), 400)
    47
    """
    step = math.ceil(count / limit)
    while any(math.gcd(step, side) > 1 for side in shape):
        step += 1
    return step


def stat(array: np.ndarray) -> np.ndarray:
    """Mean, standard deviation and largest absolute value."""
    return np.array([array.mean(dtype=np.float64), array.std(dtype=np.float64), np.abs(array).max()])


def is_large_output(key: str, array: np.ndarray) -> bool:
    compared = any(f"/{part}" in f"/{key}" for part in OUTPUTS)
    return compared and array.dtype.kind == "f" and array.size > 2 * LIMIT and not any(w in key for w in WHOLE)


def thin(arrays: Arrays, sampled: dict[str, Any]) -> tuple[Arrays, dict[str, Any]]:
    """Fewer places of every large output; what was sampled before is sampled further."""
    kept, rules = {}, {k: dict(v) for k, v in sampled.items()}
    for key, array in arrays.items():
        name = key.removesuffix("__sample")
        if key.endswith("__stat") or not is_large_output(key, array):
            kept[key] = array
        elif key.endswith("__sample"):
            step = stride(array.size, rules[name]["shape"])
            kept[key] = array[::step]
            rules[name]["stride"] *= step
        else:
            step = stride(array.size, array.shape)
            kept[f"{key}__sample"], kept[f"{key}__stat"] = array.reshape(-1)[::step], stat(array)
            rules[key] = {"shape": list(array.shape), "stride": step}
    return kept, rules


def without_repetitions(fixture: str, arrays: Arrays, places: Places) -> tuple[Arrays, dict[str, list[str]]]:
    """The arrays that no fixture has stored yet, and where the others are."""
    kept: Arrays = {}
    same: dict[str, list[str]] = {}
    for key, array in arrays.items():
        content = (array.dtype.str, array.shape, array.tobytes())
        if array.nbytes < 256 or content not in places:
            places.setdefault(content, (fixture, key))
            kept[key] = array
        else:
            same[key] = list(places[content])
    return kept, same


def main(full: Path, out: Path) -> None:
    places: Places = {}
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(full.glob("*.npz")):
        meta = json.loads(path.with_suffix(".json").read_text())
        arrays, sampled = thin(dict(np.load(path)), meta.get("sampled", {}))
        kept, same = without_repetitions(path.stem, arrays, places)
        np.savez_compressed(out / path.name, **kept)
        text = json.dumps({**meta, "sampled": sampled, "same": same}, separators=(",", ":"))
        (out / f"{path.stem}.json").write_text(text + "\n")
    total = sum(p.stat().st_size for p in out.iterdir())
    print(f"{out}: {total / 1e6:.2f} MB of {sum(p.stat().st_size for p in full.iterdir()) / 1e6:.2f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
