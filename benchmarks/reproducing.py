"""The measured tables of docs/reproducing.md, from the folder of a bench.

    python benchmarks/reproducing.py bench --write docs/reproducing.md --keep benchmarks/worlds_results.json
    python benchmarks/reproducing.py benchmarks/worlds_results.json --write docs/reproducing.md     # the kept tables again

``--keep`` stores the tables and findings without the cells (a few hundred kB instead of megabytes).
"""

import argparse
import json
from pathlib import Path
from typing import Any

MARKS = ("<!-- tables -->\n", "<!-- end of tables -->\n")
SHOWN = ("indoor", "outdoor", "mixed")
SCORES = {
    "Forgetting MAE": ("forgetting (%)", 1),
    "Average performance MAE": ("performance (mm)", 1),
    "SPTO MAE": ("SPTO (mm)", 1),
}
NETWORKS = ("lite", "KBNet", "VOICED", "FusionNet", "Uformer")
NOT_LEARNING = ("Pretrained", "Joint")  # not among the methods that learn one domain after the other


def read(place: Path) -> dict[str, Any]:
    """Tables and findings of a bench folder or of a kept file."""
    document = json.loads((place / "results.json" if place.is_dir() else place).read_text())
    kept = ("title", "findings", "missing", "tables", "seconds")
    experiments = {
        name: {key: found[key] for key in kept}
        for name, found in document["experiments"].items()
        if found.get("tables")
    }
    return {"about": document["about"], "experiments": experiments}


def number(value: dict[str, Any] | None, digits: int = 1) -> str:
    if value is None or value["mean"] is None:
        return "–"
    spread = value["spread"]
    return f"{value['mean']:.{digits}f}" + (f" ± {spread:.{digits}f}" if spread else "")


def marked(rows: list[dict[str, Any]], column: str, digits: int) -> list[str]:
    """The column as text, the best of the learning methods bold."""
    learning = [r[column]["mean"] for r in rows if r["Method"] not in NOT_LEARNING and r[column]["mean"] is not None]
    best = min(learning, default=None)
    texts = []
    for row in rows:
        text = number(row[column], digits)
        best_here = row["Method"] not in NOT_LEARNING and row[column]["mean"] == best
        texts.append(f"**{text}**" if best_here else text)
    return texts


def section(name: str, found: dict[str, Any]) -> str:
    scores = found["tables"]["scores"]
    stages = {(r["Network"], r["Method"]): r for r in found["tables"]["stages"]}
    ends = [k for k in found["tables"]["stages"][0] if k.endswith("at the end")]
    last = [k for k in found["tables"]["stages"][0] if k.endswith("learned")][
        -1
    ]  # the last domain ends as it was learned
    worlds = [k.removesuffix(" at the end") for k in ends] + [last.removesuffix(" learned")]
    lines = [
        f"### {name}: {' → '.join(worlds)}\n",
        f"| network | method | {' | '.join(title for title, _ in SCORES.values())} | MAE at the end of {', '.join(worlds)} (mm) |",
        "|---|---|" + "---:|" * (len(SCORES) + 1),
    ]
    for network in sorted({r["Network"] for r in scores}, key=NETWORKS.index):
        rows = [r for r in scores if r["Network"] == network]
        columns = [marked(rows, column, digits) for column, (_, digits) in SCORES.items()]
        for row, texts in zip(rows, zip(*columns, strict=True), strict=True):
            own = stages.get((network, row["Method"]), {})
            errors = ", ".join(number(own.get(k) and {**own[k], "spread": None}, 0) for k in (*ends, last))
            lines.append(f"| {network} | {row['Method']} | {' | '.join(texts)} | {errors} |")
    lines.append("\nGain over the best baseline, as the paper computes it (in brackets the paper's own tables):\n")
    lines += ["| | forgetting (%) | performance (%) | SPTO (%) |", "|---|---:|---:|---:|"]
    for row in found["tables"]["gain"]:
        texts = [
            number(row[k], 2) + (f" [{row[k]['paper']:g}]" if row[k]["paper"] is not None else "")
            for k in ("Forgetting", "Average performance", "SPTO")
        ]
        lines.append(f"| {row['Method']} | {' | '.join(texts)} |")
    lines.append("")
    lines += [f"- {finding}" for finding in found["findings"]]
    if found["missing"]:
        lines.append(f"- Not finished when this was written: {len(found['missing'])} cells.")
    lines.append(f"\nTime of all cells together: {found['seconds'] / 60:.0f} minutes of one core.\n")
    return "\n".join(lines)


def markdown(document: dict[str, Any]) -> str:
    parts = [section(name, document["experiments"][name]) for name in SHOWN if name in document["experiments"]]
    return "\n".join(parts)


def write_into(path: Path, tables: str) -> None:
    before, rest = path.read_text().split(MARKS[0])
    path.write_text(before + MARKS[0] + tables + MARKS[1] + rest.split(MARKS[1])[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path, help="folder of a bench, or a kept file")
    parser.add_argument("--write", type=Path, default=None, help="document whose tables are replaced")
    parser.add_argument("--keep", type=Path, default=None, help="file for the tables")
    given = parser.parse_args()
    source = given.bench / "results.json" if given.bench.is_dir() else given.bench
    if not source.is_file():
        parser.error(f"{source} does not exist: give the --out folder of a finished bench, or a file written by --keep")
    document = read(given.bench)
    if given.keep is not None:
        given.keep.write_text(json.dumps(document, indent=1) + "\n")
    if given.write is None:
        print(markdown(document))
    else:
        write_into(given.write, markdown(document))


if __name__ == "__main__":
    main()
