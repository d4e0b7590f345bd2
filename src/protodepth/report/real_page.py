"""The page of ``bench real``: tables over settings (a recording through a pattern of points), made of its rows alone.

A row is one predictor in one setting.  Its ratio is its error over the smallest of the classical methods' there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.report import bench_page
from protodepth.report.bench_page import Figure, Section
from protodepth.report.tables import Column, Line, Table, Value

SECTION = "real"
REGIONS = {"edges": "near edges", "smooth": "smooth", "far": "far", "holes": "in holes"}
ROLES = {"classical": "", "base": "", "adapted": ", adapted", "agnostic": ", ProtoDepth-A"}
JUDGED = (
    "Errors are over the pixels that have depth and no input point. Near edges: within a hundredth of the height of a "
    "jump by a tenth; smooth: the others; far: the farthest quarter; in holes: farther than a twentieth of the width "
    "from every point (with the pattern holes: all)."
)
WORDS = bench_page.Words(
    title="Real sensors",
    intro=JUDGED,
    meanings={
        "MAE, RMSE (mm)": "Mean absolute and root mean square error of depth; the mean over frames. " + JUDGED,
        "ratio": "An error over the smallest of the classical methods' (nearest, linear, morphological) in the same "
        "setting: below 1 the network is better than every interpolation.",
        "setting": "One recording through one pattern of points. All predictors get the same points.",
        "adapted": "After protodepth adapt on the recording, without labels and its test block; its name is given.",
        "ProtoDepth-A": "All recordings in one model; the domain is chosen for each image.",
    },
)
MeasuredRow = Mapping[str, Any]
Setting = tuple[str, str]  # recording, pattern


def _predictor(row: MeasuredRow) -> str:
    """
    >>> _predictor({"predictor": "any-sensor", "role": "adapted"})
    'any-sensor, adapted'
    """
    return str(row["predictor"]) + ROLES[row["role"]]


@dataclass(frozen=True, slots=True)
class Measurements:
    """The rows by setting and predictor."""

    rows: dict[Setting, dict[str, MeasuredRow]]

    @classmethod
    def of(cls, rows: Sequence[MeasuredRow]) -> "Measurements":
        out: dict[Setting, dict[str, MeasuredRow]] = {}
        for row in rows:
            out.setdefault((row["recording"], row["pattern"]), {})[_predictor(row)] = row
        return cls(out)

    @property
    def predictors(self) -> list[str]:
        return list(dict.fromkeys(name for rows in self.rows.values() for name in rows))

    def best(self, setting: Setting, error: str) -> float | None:
        """The smallest error of the classical methods in a setting."""
        own = [r["mean"][error] for r in self.rows[setting].values() if r["role"] == "classical"]
        return min((v for v in own if v is not None), default=None)

    def ratio(self, setting: Setting, name: str, error: str = "mae") -> float | None:
        """None where there is nothing to compare; infinite where a predictor gave something that is no depth."""
        row, best = self.rows[setting].get(name), self.best(setting, error)
        if row is None or not best:
            return None
        return math.inf if row["mean"][error] is None else row["mean"][error] / best

    def ratios(self, name: str, error: str = "mae") -> dict[Setting, float]:
        ratios = {s: self.ratio(s, name, error) for s in self.rows}
        return {s: v for s, v in ratios.items() if v is not None}

    def role(self, name: str) -> str:
        return next(str(rows[name]["role"]) for rows in self.rows.values() if name in rows)

    def gains(self, name: str) -> dict[Setting, float]:
        """What an adapted model's MAE is over its base's, by setting; nothing for the others."""
        out = {}
        for setting, rows in self.rows.items() if self.role(name) in ("adapted", "agnostic") else ():
            row, base = rows.get(name), rows.get(str(rows[name]["predictor"])) if name in rows else None
            if row and base and row["mean"]["mae"] and base["mean"]["mae"]:
                out[setting] = row["mean"]["mae"] / base["mean"]["mae"]
        return out


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


# --- tables -----------------------------------------------------------------------------------------------------------


def summary(measured: Measurements) -> Table:
    """A line for each predictor: means over all settings, the worst one, and how many lose against interpolation."""
    lines = []
    for name in measured.predictors:
        mae, rmse = measured.ratios(name), measured.ratios(name, "rmse")
        if not mae:
            continue
        holes = [v for (_, p), v in mae.items() if p.startswith("holes")]
        worst = max(mae, key=lambda s: mae[s])
        gains = measured.gains(name)
        seconds = [float(rows[name]["seconds"]) for rows in measured.rows.values() if name in rows]
        cells: tuple[Value | str, ...] = (
            Value(_mean(list(mae.values()))),
            Value(_mean(list(rmse.values()))),
            Value(_mean(holes)),
            Value(mae[worst]),
            " ".join(worst),
            f"{sum(v > 1 for v in mae.values())} of {len(mae)}",
            Value(_mean(list(gains.values()))),
            Value(max(gains.values(), default=None)),
            Value(1000 * (_mean(seconds) or 0)),
        )
        lines.append(Line((name,), cells, ranked=measured.role(name) != "classical"))
    columns = (
        Column("MAE", "mean ratio", "", 3),
        Column("RMSE", "mean ratio", "", 3),
        Column("MAE, holes", "mean ratio", "", 3),
        Column("MAE ratio", "worst setting", "", 2, ranked=False),
        Column("which", "worst setting", "", ranked=False),
        Column("above 1.0", "settings", "", ranked=False),
        Column("mean", "MAE over its base's", "", 3, ranked=False),
        Column("worst", "MAE over its base's", "", 3, ranked=False),
        Column("CPU time", "", "ms a frame", 0, ranked=False),
    )
    note = (
        "Ratio: error over that of the best classical method in the same setting; those of the classical methods "
        "themselves are therefore 1 or more."
    )
    title = f"Means over {len(measured.rows)} settings"
    return Table(name="summary", title=title, heads=("Predictor",), columns=columns, lines=tuple(lines), note=note)


def _overview(measured: Measurements) -> Table:
    """A line for each setting: the MAE of every predictor and its ratio."""
    columns = [Column("points", "", "mean", 0, ranked=False)]
    for name in measured.predictors:
        columns += [Column("MAE", name, "mm", 1, ranked=False), Column("ratio", name, "", 2, ranked=False)]
    lines = []
    for setting, rows in measured.rows.items():
        first = next(iter(rows.values()))
        cells: list[Value | str] = [Value(first["points"])]
        for name in measured.predictors:
            value = rows[name]["mean"]["mae"] if name in rows else None
            cells += [Value(value), Value(measured.ratio(setting, name))]
        lines.append(Line(setting, tuple(cells), group=setting[0]))
    return Table(
        name="settings",
        title="MAE in every setting, and over the best classical method's",
        heads=("Recording", "Pattern"),
        columns=tuple(columns),
        lines=tuple(lines),
        note=JUDGED,
    )


def _details(measured: Measurements, recording: str) -> Table:
    """All errors on one recording: a line for each pattern and predictor."""
    columns = [
        Column("MAE", "all", "mm", 1),
        Column("RMSE", "all", "mm", 1),
        Column("MAE", "over the best classical", "", 2),
        Column("RMSE", "over the best classical", "", 2),
        *(Column(title, "MAE of the pixels", "mm", 1) for title in REGIONS.values()),
        Column("CPU time", "", "ms a frame", 0, ranked=False),
    ]
    lines = []
    for setting, rows in measured.rows.items():
        for name, row in rows.items() if setting[0] == recording else ():
            errors = row["mean"]
            ratios = [Value(measured.ratio(setting, name, e)) for e in ("mae", "rmse")]
            own = [Value(errors["mae"]), Value(errors["rmse"]), *ratios, *(Value(errors[r]) for r in REGIONS)]
            lines.append(Line((setting[1], name), (*own, Value(1000 * row["seconds"])), group=setting[1]))
    return Table(
        name=f"details-{recording}",
        title=f"{recording}: every pattern",
        heads=("Pattern", "Predictor"),
        columns=tuple(columns),
        lines=tuple(lines),
    )


def _adaptations(rows: Sequence[MeasuredRow]) -> Table:
    """What adapt itself said of each recording: the error at points that it hid."""
    columns = (
        Column("steps", "", "made", 0, ranked=False),
        Column("kept", "", "step", 0, ranked=False),
        Column("before", "error at hidden points", "mm", 1, ranked=False),
        Column("after", "error at hidden points", "mm", 1, ranked=False),
        Column("gone", "error at hidden points", "%", 1, ranked=False),
        Column("verdict", "", "", ranked=False),
        Column("time", "", "s", 0, ranked=False),
    )
    lines = [
        Line(
            (row["model"], row["recording"]),
            (
                Value(row["steps"]),
                Value(row["best_step"]),
                Value(row["before"]),
                Value(row["after"]),
                Value(None if row["gain"] is None else 100 * row["gain"]),
                "helped" if row["helped"] else "did not help",
                Value(row["seconds"]),
            ),
        )
        for row in rows
    ]
    title = "Adapting, without labels: what adapt itself said"
    return Table(name="adapting", title=title, heads=("Model", "Recording"), columns=columns, lines=tuple(lines))


AS_IT_IS = "as the recording is"


def choosing(rows: Sequence[MeasuredRow], choices: Sequence[MeasuredRow]) -> Table:
    """ProtoDepth-A: for how many frames the own domain was chosen, by the input that was shown."""
    columns = (
        Column("frames", "", "", 0, ranked=False),
        Column("right", "own domain chosen", "%", 1, ranked=False),
        Column("false alarms", "flagged unknown", "%", 1, ranked=False),
        Column("without its domain", "flagged unknown", "%", 1, ranked=False),
        Column("chosen", "", "", ranked=False),
    )
    asked = [(r["model"], r["recording"], AS_IT_IS, r) for r in choices]
    asked += [(r["predictor"], r["recording"], r["pattern"], r["choice"]) for r in rows if r.get("choice")]
    order = list(dict.fromkeys((model, recording) for model, recording, _, _ in asked))
    lines = []
    for model, recording, shown, c in sorted(asked, key=lambda a: order.index((a[0], a[1]))):
        unseen = c.get("flagged_unseen")
        cells = (
            Value(c["frames"]),
            Value(100 * c["right"]),
            Value(100 * c["flagged"]),
            Value(None if unseen is None else 100 * unseen),
            ", ".join(f"{name} {count}" for name, count in c["chosen"].items()),
        )
        lines.append(Line((model, recording, shown), cells, group=f"{model} {recording}"))
    return Table(
        name="choosing",
        title="ProtoDepth-A: all recordings in one model, the domain chosen for each image",
        heads=("Model", "Recording", "Input"),
        columns=columns,
        lines=tuple(lines),
    )


def findings(measured: Measurements) -> list[str]:
    """The summary in sentences."""
    out = []
    for name in measured.predictors:
        ratios, rmse = measured.ratios(name), measured.ratios(name, "rmse")
        if not ratios or measured.role(name) == "classical":
            continue
        worst = max(ratios, key=lambda s: ratios[s])
        above = sum(v > 1 for v in ratios.values())
        text = (
            f"{name}: MAE {_mean(list(ratios.values())):.3f} and RMSE {_mean(list(rmse.values())):.3f} of the best "
            f"classical method's on average, worst in {' '.join(worst)} ({ratios[worst]:.2f}), above 1.0 in {above} of "
            f"{len(ratios)} settings"
        )
        gains = measured.gains(name)
        if gains:
            text += f"; {_mean(list(gains.values())):.3f} of its base's MAE, at worst {max(gains.values()):.3f}"
        out.append(text + ".")
    return out


# --- page -------------------------------------------------------------------------------------------------------------


def sections(document: Mapping[str, Any], figures: Mapping[str, Sequence[Figure]]) -> list[Section]:
    """The page's parts from the document that ``results.json`` keeps under ``experiments.real``."""
    rows, all_rows = document["rows"], Measurements.of(document["rows"])
    tables = [summary(all_rows), _overview(all_rows)]
    if document["adapted"]:
        tables.append(_adaptations(document["adapted"]))
    if document["choices"] or any(r.get("choice") for r in rows):
        tables.append(choosing(rows, document["choices"]))
    patterns = "; ".join(f"{name}: {text}" for name, text in document["patterns"].items())
    first = Section(
        name=SECTION,
        title="Summary",
        about=f"Frames of the {document['options']['split']} blocks. Patterns of points: {patterns}.",
        tables=[t for t in tables if t.lines],
        findings=findings(all_rows),
        missing=[f"not finished yet: {title}" for title in document["missing"]],
        data={k: v for k, v in document.items() if k != "missing"} | {"unfinished": document["missing"]},
        seconds=float(document["seconds"]),
    )
    parts = [first]
    for name, about in document["recordings"].items():
        height, width = about["size"]
        kind = "dense depth" if about["dense"] else "one sparse sweep a frame"
        count = len(about["measured"])
        text = f"{width}x{height}, {kind}, {count} frame{'s' * (count != 1)} measured. Split: {about['split']}."
        table = _details(all_rows, name)
        parts.append(
            Section(
                name=f"recording-{name}",
                title=name,
                about=text,
                tables=[table] if table.lines else [],
                figures=figures.get(name, ()),
            )
        )
    return parts


def write(
    folder: Path, document: Mapping[str, Any], about: dict[str, Any], figures: Mapping[str, Sequence[Figure]]
) -> list[Path]:
    """The report of ``bench real``: report.html, report.md, results.json and figures/; returns the three paths."""
    return bench_page.write(folder, sections(document, figures), about, WORDS)
