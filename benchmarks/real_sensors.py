"""The tables of real sensors in README.md and docs/real_sensors.md, made of the numbers in real_sensors.json.

    python benchmarks/real_sensors.py                         # writes the tables again
    python benchmarks/real_sensors.py bench-real/results.json # first takes the numbers of a finished `bench real`

No frame of a recording is in the repository: their licences differ.
"""

import argparse
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / "benchmarks" / "real_sensors.json"
CLASSICAL = ("nearest", "linear", "morphological")
SENSORS = {"sevenscenes": "Kinect (7-Scenes)", "hololens": "HoloLens", "kitti_raw": "Velodyne (KITTI)"}
PATTERNS = {
    "500": "500 points",
    "1500": "1500 points",
    "5%": "5 % of the pixels",
    "corners": "500 corners",
    "holes": "holes in a dense map",
    "lidar": "a sweep, 30 % withheld",
    "100": "100 points",
    "clustered": "500 points crowded on edges",
    "tof": "a grid of 32 zones",
    "tenth": "a tenth of a sweep",
}
FIRST = (("sevenscenes", "500"), ("sevenscenes", "holes"), ("hololens", "500"), ("hololens", "holes"),
         ("kitti_raw", "500"), ("kitti_raw", "lidar"))  # fmt: skip


def take(results: Path) -> None:
    """Keep the means of a run, without the names of folders."""
    real = json.loads(results.read_text())["experiments"]["real"]
    rows = [
        {"recording": r["recording"], "pattern": r["pattern"], "predictor": label(r), **r["mean"]} for r in real["rows"]
    ]
    options = {k: real["options"][k] for k in ("split", "frames", "seed", "steps") if k in real["options"]}
    kept = {"options": options, "rows": rows, "adapted": real["adapted"], "choices": real["choices"]}
    NUMBERS.write_text(json.dumps(kept, indent=1) + "\n")


def label(row: dict[str, Any]) -> str:
    """any-sensor as it is; any-sensor, adapted; any-sensor, agnostic; or the name of an interpolation."""
    return row["predictor"] if row["role"] in ("classical", "base") else f"{row['predictor']}, {row['role']}"


def settings(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, dict[str, float]]]:
    """(recording, pattern) -> predictor -> errors."""
    table: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for r in rows:
        table.setdefault((r["recording"], r["pattern"]), {})[r["predictor"]] = r
    return table


def ratio(found: dict[str, dict[str, float]], predictor: str, error: str) -> float:
    return found[predictor][error] / min(found[name][error] for name in CLASSICAL)


def line(key: tuple[str, str], found: dict[str, dict[str, float]]) -> str:
    best = min(found[name]["mae"] for name in (*CLASSICAL, "any-sensor"))
    cells = [found[name]["mae"] for name in (*CLASSICAL, "any-sensor")]
    shown = [f"**{v:.0f}**" if v == best else f"{v:.0f}" for v in cells]
    share = f"{ratio(found, 'any-sensor', 'mae'):.2f} | {ratio(found, 'any-sensor', 'rmse'):.2f}"
    return f"| {SENSORS[key[0]]} | {PATTERNS[key[1]]} | {' | '.join(shown)} | {share} |"


def table(wanted: tuple[tuple[str, str], ...] | None = None) -> str:
    """A row for each setting, and the means over all of them."""
    every = settings(json.loads(NUMBERS.read_text())["rows"])
    chosen = wanted or tuple(every)
    head = "| sensor | input | nearest | linear | morphological | `any-sensor` | of the best, MAE | RMSE |"
    means = [sum(ratio(f, "any-sensor", e) for f in every.values()) / len(every) for e in ("mae", "rmse")]
    worst = max(ratio(f, "any-sensor", "mae") for f in every.values())
    last = f"| mean of {len(every)} settings (worst {worst:.2f}) | | | | | | {means[0]:.2f} | {means[1]:.2f} |"
    return "\n".join([head, "|---|---|---:|---:|---:|---:|---:|---:|", *(line(k, every[k]) for k in chosen), last])


PLACES = {"README.md": FIRST, "docs/real_sensors.md": None}


def between(text: str, new: str) -> str:
    start, end = "<!-- real sensors -->\n", "<!-- end of real sensors -->"
    before, _, rest = text.partition(start)
    return f"{before}{start}{new}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="?", type=Path)
    given = parser.parse_args()
    if given.results:
        take(given.results)
    for name, wanted in PLACES.items():
        path = ROOT / name
        path.write_text(between(path.read_text(), table(wanted)))
        print(f"wrote the table of {name}")


if __name__ == "__main__":
    main()
