"""The measured tables of docs/reproducing.md, from the folder of a bench.

    python benchmarks/reproducing.py bench --between fresh --write docs/reproducing.md --keep
    benchmarks/worlds_fresh_results.json
    python benchmarks/reproducing.py kept --write docs/reproducing.md     # all tables and "What holds" again

``--keep`` stores tables and findings, and of every training its matrices and the MAE of every test scene, so that
others can compute the scores and intervals again.  ``--with FILE`` adds the trainings of a file that was kept before:
its run's folder is no longer needed (merging.py).
"""

import argparse
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
# What is kept of each place of the document.
KEPT = {
    "tables": HERE / "worlds_results.json",
    "long": HERE / "worlds_long_results.json",
    "fresh": HERE / "worlds_fresh_results.json",
}
TRIALS = HERE / "worlds_trials.json"
OWN_PARTS = HERE / "worlds_own_parts.json"

# Places of tables in the document, and what their headings say of the run.
PLACES = {"tables": "", "long": ", 1500 steps", "fresh": ", fresh scenes"}
SHOWN = ("indoor", "outdoor", "mixed")
SCORES = {
    "Forgetting MAE": ("forgetting (%)", 1),
    "Average performance MAE": ("performance (mm)", 1),
    "SPTO MAE": ("SPTO (mm)", 1),
}
# The other experiments: what their columns end with, and decimals.
OTHERS: dict[str, dict[str, int]] = {
    "set-sizes-indoor": {"a domain, %": 1, "MAE": 1, "RMSE": 1},
    "set-sizes-outdoor": {"a domain, %": 1, "MAE": 1, "RMSE": 1},
    "ablations": {"MAE": 1, "RMSE": 1, "iMAE": 2, "iRMSE": 2},
    "training-time": {"step": 1, "times finetuning": 2, "between": 1},
    "joint": {"MAE": 1, "RMSE": 1, "iMAE": 2, "iRMSE": 2},
    "zero-shot": {"MAE": 1, "RMSE": 1, "iMAE": 2, "iRMSE": 2},
}
NETWORKS = ("lite", "KBNet", "VOICED", "FusionNet", "Uformer")
NOT_LEARNING = ("Pretrained", "Joint")  # not among the methods that learn one domain after the other


def read(place: Path) -> dict[str, Any]:
    """Tables, findings and trainings of a bench folder or of a kept file."""
    document = json.loads((place / "results.json" if place.is_dir() else place).read_text())
    kept = ("title", "findings", "missing", "tables", "seconds", "configuration")
    experiments = {}
    for name, found in document["experiments"].items():
        if found.get("tables"):
            experiments[name] = {key: found[key] for key in kept if key in found}
            if "cells" in found and name in SHOWN:
                experiments[name] |= trainings(place, name) if place.is_dir() else {"cells": found["cells"]}
    about = document["about"]
    return {"about": {**about, "system": about["system"].split()[0]}, "experiments": experiments}


def trainings(bench: Path, name: str) -> dict[str, Any]:
    """What all trainings of an experiment have in common, and what is kept of each."""
    merging = neighbour("merging")
    known = json.loads((bench / "results.json").read_text())["experiments"][name]["cells"]
    cells = []
    for key in known:
        stored = json.loads((bench / "cells" / "sequence" / key / "result.json").read_text())
        cells.append(merging.kept_cell(stored["label"], stored["result"]))
    return {"configuration": merging.configuration_of(bench, name), "cells": cells}


def number(value: dict[str, Any] | None, digits: int = 1) -> str:
    if value is None or value["mean"] is None:
        return "–"
    spread = value["spread"]
    return f"{value['mean']:.{digits}f}" + (f" ± {spread:.{digits}f}" if spread else "")


def marked(rows: list[dict[str, Any]], column: str, digits: int) -> list[str]:
    """The column as text, the best of the learning methods bold."""
    learning = [
        r[column]["mean"]
        for r in rows
        if r["Method"] not in NOT_LEARNING and r[column]["mean"] is not None and not uncounted(r, column)
    ]
    best = min(learning, default=None)
    texts = []
    for row in rows:
        text = number(row[column], digits)
        if uncounted(row, column):
            texts.append(f"{text} †")
            continue
        best_here = row["Method"] not in NOT_LEARNING and row[column]["mean"] == best
        texts.append(f"**{text}**" if best_here else text)
    return texts


def uncounted(row: dict[str, Any], column: str) -> bool:
    """L2P's forgetting in results from before its prompts for D_1 were learned first (they have no cells)."""
    return bool(row.get("early")) and column.startswith("Forgetting")


def at_the_end(values: list[dict[str, Any] | None]) -> str:
    """Errors on every domain after the last one was learned, and their mean: the stability of SPTO.

    >>> at_the_end([{"mean": 161.2}, {"mean": 325.4}, {"mean": 247.6}])
    '161, 325, 248; 244.7'
    """
    known = [v["mean"] for v in values if v is not None and v["mean"] is not None]
    if len(known) < len(values):
        return "–"
    return ", ".join(f"{n:.0f}" for n in known) + f"; {sum(known) / len(known):.1f}"


def said(found: dict[str, Any]) -> list[str]:
    """The findings of an experiment and what it lacks."""
    lacks = [f"- Not finished when this was written: {len(found['missing'])} cells."] if found["missing"] else []
    return [f"- {finding}" for finding in found["findings"]] + lacks


def section(name: str, found: dict[str, Any], note: str = "") -> str:
    scores = [{**r, "early": r["Method"] == "L2P" and "cells" not in found} for r in found["tables"]["scores"]]
    stages = {(r["Network"], r["Method"]): r for r in found["tables"]["stages"]}
    ends = [k for k in found["tables"]["stages"][0] if k.endswith("at the end")]
    last = [k for k in found["tables"]["stages"][0] if k.endswith("learned")][
        -1
    ]  # the last domain ends as it was learned
    worlds = [k.removesuffix(" at the end") for k in ends] + [last.removesuffix(" learned")]
    lines = [
        f"{'####' if note else '###'} {name}{note}: {' → '.join(worlds)}\n",
        (
            f"| network | method | {' | '.join(title for title, _ in SCORES.values())} | MAE at the end of "
            f"{', '.join(worlds)}; mean (mm) |"
        ),
        "|---|---|" + "---:|" * (len(SCORES) + 1),
    ]
    for network in sorted({r["Network"] for r in scores}, key=NETWORKS.index):
        rows = [r for r in scores if r["Network"] == network]
        columns = [marked(rows, column, digits) for column, (_, digits) in SCORES.items()]
        for row, texts in zip(rows, zip(*columns, strict=True), strict=True):
            own = stages.get((network, row["Method"]), {})
            errors = at_the_end([own.get(k) for k in (*ends, last)])
            lines.append(f"| {network} | {row['Method']} | {' | '.join(texts)} | {errors} |")
    lines.append("\nGain over the best baseline, as the paper computes it (in brackets the paper's own tables):\n")
    lines += ["| | forgetting (%) | performance (%) | SPTO (%) |", "|---|---:|---:|---:|"]
    for row in found["tables"]["gain"]:
        texts = [number(row[k], 2) + printed(row[k]) for k in ("Forgetting", "Average performance", "SPTO")]
        lines.append(f"| {row['Method']} | {' | '.join(texts)} |")
    lines.append("")
    lines += paired(found["tables"].get("paired", ())) if "cells" in found else []
    lines += said(found)
    lines.append(f"\nTime of all cells together: {found['seconds'] / 60:.0f} minutes of one core.\n")
    return "\n".join(lines)


PAIRED = {
    "Average performance MAE": "performance (mm)",
    "SPTO MAE": "SPTO (mm)",
    "Error at the end MAE": "at the end (mm)",
    "seeds": "seeds",
}


def paired(rows: list[dict[str, Any]]) -> list[str]:
    """Differences to ours with their intervals, of runs whose seeds drew their own scenes."""
    lines = ["Paired differences in MAE with 95 % intervals (above zero: what is subtracted has the lower error):\n"]
    lines += [f"| network | difference | {' | '.join(PAIRED.values())} |", "|---|---|" + "---:|" * len(PAIRED)]
    lines += [f"| {r['Network']} | {r['Difference']} | {' | '.join(r[k] for k in PAIRED)} |" for r in rows]
    return [*lines, ""] if rows else []


def other_section(name: str, found: dict[str, Any]) -> str:
    """Every table of an experiment with the columns that OTHERS names, ours and in brackets the paper's."""
    lines = [f"### {found['title']}\n"]
    for rows in found["tables"].values():
        heads = [key for key, value in rows[0].items() if not isinstance(value, dict)]
        columns = {key: digits_of(name, key) for key in rows[0] if key not in heads}
        columns = {key: digits for key, digits in columns.items() if digits is not None}
        lines += [f"| {' | '.join((*heads, *columns))} |", "|---|" + "---|" * (len(heads) - 1) + "---:|" * len(columns)]
        for row in rows:
            texts = [number(row[key], digits) + printed(row[key]) for key, digits in columns.items()]
            lines.append(f"| {' | '.join((*(str(row[h]) for h in heads), *texts))} |")
        lines.append("")
    lines += said(found)
    return "\n".join(lines) + ("\n" if said(found) else "")


def digits_of(name: str, column: str) -> int | None:
    """Decimals of a column; None: it is not shown.

    >>> digits_of("set-sizes-indoor", "warehouse MAE"), digits_of("set-sizes-indoor", "warehouse iMAE")
    (1, None)
    """
    return next((digits for end, digits in OTHERS[name].items() if column == end or column.endswith(f" {end}")), None)


def printed(value: dict[str, Any]) -> str:
    return f" [{value['paper']:g}]" if value["paper"] is not None else ""


def markdown(document: dict[str, Any], place: str = "tables") -> str:
    known = document["experiments"]
    parts = [section(name, known[name], PLACES[place]) for name in SHOWN if name in known]
    parts += [other_section(name, known[name]) for name in OTHERS if name in known]
    return "\n".join(parts)


def split(text: str, place: str) -> tuple[str, str, str]:
    """A document before, at and after the place of its tables, the marks with the outer parts.

    >>> split("a\\n<!-- long -->\\nb\\n<!-- end of long -->\\nc", "long")
    ('a\\n<!-- long -->\\n', 'b\\n', '<!-- end of long -->\\nc')
    """
    start, end = f"<!-- {place} -->\n", f"<!-- end of {place} -->\n"
    before, rest = text.split(start)
    tables, after = rest.split(end)
    return before + start, tables, end + after


def write_into(path: Path, tables: str, place: str) -> None:
    before, _, after = split(path.read_text(), place)
    path.write_text(before + tables + after)


def neighbour(name: str) -> ModuleType:
    """A script of this folder."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def what_holds() -> str:
    """The section that what_holds.py writes."""
    fresh, trials = read(KEPT["fresh"]), json.loads(TRIALS.read_text())
    return str(neighbour("what_holds").holds(read(KEPT["tables"]), trials, fresh))


def own_parts() -> str:
    """The table that own_parts.py writes."""
    return str(neighbour("own_parts").markdown(json.loads(OWN_PARTS.read_text())["rows"]))


MADE = {"holds": what_holds, "parts": own_parts}  # places that other scripts write


def rewrite(document: Path) -> None:
    """Every place of the document from what is kept."""
    for place in (*KEPT, *MADE):
        write_into(document, text_of(place), place)


def text_of(place: str) -> str:
    """What stands at a place of the document."""
    if place in MADE:
        return MADE[place]()
    return markdown(read(KEPT[place]), place) or "No training is finished yet.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path, help="folder of a bench, a kept file, or the word kept")
    parser.add_argument("--with", type=Path, default=None, dest="other", help="kept file whose trainings are added")
    parser.add_argument("--write", type=Path, default=None, help="document whose tables are replaced")
    parser.add_argument("--keep", type=Path, default=None, help="file for the tables")
    parser.add_argument("--between", choices=PLACES, default="tables", help="which tables of the document")
    given = parser.parse_args()
    if given.bench == Path("kept") and given.write is not None:
        rewrite(given.write)
        return
    for place in filter(None, (given.bench, given.other)):
        source = place / "results.json" if place.is_dir() else place
        if not source.is_file():
            parser.error(f"{source} does not exist: give the --out folder of a bench, or a file written by --keep")
    merging = neighbour("merging")
    try:
        document = read(given.bench)
        document = document if given.other is None else merging.merged(read(given.other), document)
    except merging.Mismatch as error:
        parser.error(f"{error}; nothing was written")
    if given.keep is not None:
        given.keep.write_text(merging.text_of(document))
    if given.write is None:
        print(markdown(document, given.between))
    else:
        write_into(given.write, markdown(document, given.between), given.between)


if __name__ == "__main__":
    main()
