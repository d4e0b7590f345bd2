"""From finished cells to the sections of the report, one function for each kind of experiment."""

from collections.abc import Callable, Sequence
from typing import Any

from protodepth.experiments import drawn, scores
from protodepth.experiments.catalogue import Experiment
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.scores import groups, network_name
from protodepth.metrics import METRICS, UNITS
from protodepth.paper_tables import OURS, UNRANKED, by_metric, table
from protodepth.report.bench import Section
from protodepth.report.results import METRIC_NAMES, display_name
from protodepth.report.tables import Column, Line, Table, Value

Finished = Sequence[tuple[Cell, dict[str, Any]]]


def build(experiment: Experiment, cells: Sequence[Cell], store: Store, *, paper: bool) -> Section:
    """The section of an experiment; ``paper``: the numbers of the paper stand beside ours."""
    finished = list(store.finished(cells))
    make = MAKERS.get(experiment.name, _main)
    parts = make(experiment, finished, store, paper)
    open_cells = [c for c in cells if not store.done(c)]
    missing = [f"not finished yet: {c.title}" for c in open_cells[:20]]
    missing += [f"... and {len(open_cells) - 20} more"] if len(open_cells) > 20 else []
    return Section(
        name=experiment.name,
        title=f"{experiment.name}: {experiment.about}",
        about=f"In the paper: {experiment.paper}. Sequence: {_sequence_text(finished) or ', '.join(experiment.sequences)}.",
        tables=[t for t in parts.get("tables", ()) if t.lines],
        figures=parts.get("figures", ()),
        findings=parts.get("findings", ()),
        missing=(*parts.get("missing", ()), *missing),
        data={"cells": {c.key: {"label": c.label, "result": _light(r)} for c, r in finished}},
        seconds=sum(float(r.get("seconds") or 0.0) for _, r in finished),
    )


def _light(result: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in result.items() if k not in ("stages",)}


def _sequence_text(finished: Finished) -> str:
    names = dict.fromkeys(" → ".join(r["domains"]) for c, r in finished if c.kind == "sequence")
    return "; ".join(names)


def _by_sequence(finished: Finished) -> dict[str, list[tuple[Cell, dict[str, Any]]]]:
    out: dict[str, list[tuple[Cell, dict[str, Any]]]] = {}
    for cell, result in finished:
        out.setdefault(cell.label["sequence"], []).append((cell, result))
    return out


# --- tables -----------------------------------------------------------------------------------------------------------


def _main(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    rows, (sequence,) = groups(finished), experiment.sequences
    if not rows:
        return {}
    domains = next(iter(rows[0].documents.values()))["domains"]
    return {
        "tables": [
            scores.score_table(rows, sequence, paper=paper),
            scores.gain_table(rows, sequence),
            scores.stage_table(rows, domains),
            scores.paired_table(rows),
            scores.cost_table(rows),
        ],
        "findings": scores.findings(rows, sequence),
    }


def _diagonal(documents: Sequence[dict[str, Any]], method: str, metric: str, k: int) -> list[float]:
    """Error on D_k when it was learned (row k; a pretrained network has the same in every row)."""
    return [d["matrix"][method]["incremental"][metric][k][k] for d in documents]


def _variants(finished: Finished) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for cell, result in finished:
        label = cell.label
        found.setdefault((label["backbone"], label["method"], label["variant"]), []).append(result)
    return found


def _set_sizes(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    printed = table(experiment.name)
    there = {(f"{r['image_size']}/{r['depth_size']}" if "image_size" in r else ""): r for r in printed["rows"]}
    lines, domains = [], finished[0][1]["domains"] if finished else []
    for (backbone, method, variant), documents in _variants(finished).items():
        row = there.get(variant, {}) if paper else {}
        percent = list(documents[0]["overhead"].values())[1:]
        extra = percent[0] * documents[0]["parameters"] / 100 if percent else 0.0
        cells = [
            Value(extra / 1e6, None, row.get("million_parameters")),
            Value(percent[0] if percent else 0.0, None, row.get("percent")),
        ]
        for k in range(1, len(domains)):
            numbers = by_metric(row[printed["domains"][k - 1]]) if row else {}
            cells += [Value.of(_diagonal(documents, method, m, k), numbers.get(m)) for m in METRICS]
        size = variant.split("/") if variant else ["–", "–"]
        head = (network_name(backbone), display_name(method), *size)
        lines.append(Line(head, tuple(cells), backbone, method not in UNRANKED))
    columns = [
        Column("a domain", "parameters", "M", 3, ranked=False),
        Column("a domain", "parameters", "%", 1, ranked=False),
    ]
    columns += [Column(METRIC_NAMES[m], d, UNITS[m], scores.DECIMALS[UNITS[m]]) for d in domains[1:] for m in METRICS]
    note = "Parameters are exact counts of A, P and W; the paper's printed counts are those of half a W (see docs/ambiguities.md)."
    heads = ("Network", "Method", "N image", "N depth")
    return {
        "tables": [
            Table(
                name="sizes",
                title="Prototype set sizes",
                heads=heads,
                columns=tuple(columns),
                lines=tuple(lines),
                note=note,
            )
        ]
    }


ABLATED = ("mae", "rmse")


def _ablations(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    there = {r["variant"]: r for r in table("ablations")["rows"]}
    names = {"indoor": "ScanNet", "outdoor": "Waymo"}
    tables = []
    for sequence, rows in _by_sequence(finished).items():
        domain, lines = rows[0][1]["domains"][1], []
        for (backbone, method, variant), documents in _variants(rows).items():
            numbers = by_metric(there[variant][names[sequence]]) if paper and sequence in names else {}
            cells = [Value.of(_diagonal(documents, method, m, 1), numbers.get(m)) for m in METRICS]
            lines.append(Line((network_name(backbone), there[variant]["component"]), tuple(cells), backbone))
        columns = tuple(Column(METRIC_NAMES[m], domain, UNITS[m], scores.DECIMALS[UNITS[m]]) for m in METRICS)
        title = f"Ablated component, {domain}"
        tables.append(
            Table(name=sequence, title=title, heads=("Network", "Without"), columns=columns, lines=tuple(lines))
        )
    return {"tables": tables}


def _timing(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    printed = {(r["method"], r["setting"]): r["minutes"] for r in table("training-time")["rows"]}
    columns_of = {"indoor": (0, 1), "outdoor": (2, 3)}
    tables = []
    for sequence, rows in _by_sequence(finished).items():
        domains, lines = [d["domain"] for d in rows[0][1]["domains"]], []
        fine = {c.label["backbone"]: r for c, r in rows if c.label["method"] == "finetune"}
        reference = printed["finetune", "incremental"]
        for cell, result in rows:
            method, setting = cell.label["method"], "agnostic" if cell.label["variant"] == "A" else "incremental"
            minutes = printed.get((method, setting)) if paper and sequence in columns_of else None
            cells: list[Value | str] = []
            for k, row in enumerate(result["domains"]):
                low, middle, high = (1000 * v for v in row["step_seconds"])
                base = fine.get(cell.label["backbone"])
                ratio = middle / (1000 * base["domains"][k]["step_seconds"][1]) if base else None
                n = columns_of.get(sequence, (0, 1))[k]
                cells += [
                    Value(middle, (high - low) / 1.349),
                    Value(row["epoch_minutes"], None, minutes[n] if minutes else None),
                ]
                cells += [Value(ratio, None, round(minutes[n] / reference[n], 2) if minutes else None)]
                cells += [Value(row["between_seconds"])]
            lines.append(
                Line(
                    (network_name(cell.label["backbone"]), display_name(method, setting)),
                    tuple(cells),
                    cell.label["backbone"],
                )
            )
        columns = tuple(
            Column(title, d, unit, places, ranked=title == "step")
            for d in domains
            for title, unit, places in (
                ("step", "ms", 1),
                ("epoch", "min", 2),
                ("times finetuning", "", 2),
                ("between", "s", 1),
            )
        )
        note = (
            "Step: median, ± interquartile range / 1.349. Between: Fisher, buffers, auxiliary network. The paper: minutes an epoch on one "
            "RTX 3090, of other data. Measure with nothing else running on the machine."
        )
        tables.append(
            Table(
                name=sequence,
                title=f"Training time, {sequence}",
                heads=("Network", "Method"),
                columns=columns,
                lines=tuple(lines),
                note=note,
            )
        )
    return {"tables": tables}


def _error_columns(domain: str) -> tuple[Column, ...]:
    return tuple(Column(METRIC_NAMES[m], domain, UNITS[m], scores.DECIMALS[UNITS[m]]) for m in METRICS)


def _printed_errors(name: str, paper: bool) -> dict[tuple[str, str], dict[str, float]]:
    return {(r["method"], r["setting"]): by_metric(r["errors"]) for r in table(name)["rows"]} if paper else {}


def _joint(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    """Mean over the domains after the last stage."""
    there, lines = _printed_errors("joint", paper), []
    for g in groups(finished):
        numbers = there.get((g.method, g.setting), {})
        cells = [
            Value.of([float(g.matrix(s, m).values[-1].mean()) for s in g.documents], numbers.get(m)) for m in METRICS
        ]
        lines.append(Line((network_name(g.backbone), g.name), tuple(cells), g.backbone))
    text = "Mean over the domains at the end"
    return {
        "tables": [
            Table(name="mean", title=text, heads=("Network", "Method"), columns=_error_columns(""), lines=tuple(lines))
        ]
    }


def _zero_shot(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    there, lines, notes = _printed_errors("zero-shot", paper), [], []
    for (backbone, method, _), results in _variants(finished).items():
        setting = "agnostic" if method == OURS else "incremental"
        numbers = there.get((method, setting), {})
        cells = tuple(Value.of([r["errors"][m] for r in results], numbers.get(m)) for m in METRICS)
        lines.append(
            Line((network_name(backbone), display_name(method, setting)), cells, backbone, method != "pretrained")
        )
        if method == OURS:
            notes.append(
                f"{network_name(backbone)}: ProtoDepth-A used "
                + ", ".join(f"{n} for {c}" for n, c in results[0]["chosen"].items())
                + " frames."
            )
    domain = finished[0][1]["domain"] if finished else ""
    made = Table(
        name="unseen",
        title=f"On {domain}, which nobody has seen",
        heads=("Network", "Method"),
        columns=_error_columns(domain),
        lines=tuple(lines),
    )
    return {"tables": [made], "findings": notes}


HOW_FOUNDATION = (
    "Predictions of an outside model are not given. Write the test images with 'protodepth bench foundation --images FOLDER', run the "
    "model on them, save each map as <frame>.npy (or 16-bit .png) of the same size, then 'protodepth bench foundation --predictions "
    "FOLDER --kind depth' (or disparity) '--scale sparse' (or truth)."
)


def _foundation(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    there, lines = _printed_errors("foundation", paper), []
    outside = [(c, r) for c, r in finished if c.kind == "outside"]
    for cell, result in outside:
        name = f"{cell.label['outside']} (scaled at {'sparse points' if cell.label['scale'] == 'sparse' else 'ground truth'})"
        lines.append(Line(("–", name), tuple(Value(result["errors"][m]) for m in METRICS)))
    ours = groups([(c, r) for c, r in finished if c.kind == "sequence"])
    for g in ours:
        numbers = there.get((g.method, g.setting), {})
        cells = tuple(
            Value.of([float(g.matrix(s, m).values[-1, -1]) for s in g.documents], numbers.get(m)) for m in METRICS
        )
        lines.append(Line((network_name(g.backbone), g.name), cells))
    for name, title in (("depth-anything", "Depth Anything"), ("depth-pro", "Depth Pro")) if paper else ():
        printed = by_metric(next(r["errors"] for r in table("foundation")["rows"] if r["method"] == name))
        lines.append(
            Line(
                ("–", f"{title} (the paper's, not run here)"),
                tuple(Value(None, None, printed[m]) for m in METRICS),
                ranked=False,
            )
        )
    domain = next(iter(ours[0].documents.values()))["domains"][-1] if ours else ""
    made = Table(
        name="errors",
        title=f"On {domain}",
        heads=("Network", "Method"),
        columns=_error_columns(domain),
        lines=tuple(lines),
    )
    return {"tables": [made], "missing": [] if outside else [HOW_FOUNDATION]}


def _classical(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    tables, notes = [], []
    for sequence, rows in _by_sequence(finished).items():
        domains = list(dict.fromkeys(r["domain"] for _, r in rows))
        predictors = list(dict.fromkeys(c.label["predictor"] for c, _ in rows))
        found = {(c.label["predictor"], r["domain"]): r["errors"] for c, r in rows}
        lines = []
        for name in predictors:
            network = name in scores.NETWORKS
            cells = tuple(
                Value((found.get((name, d)) or dict.fromkeys(METRICS))[m]) for d in domains for m in ("mae", "rmse")
            )
            lines.append(Line((f"{network_name(name)}, base" if network else name,), cells))
            if network:
                floor = min(e["mae"] for (p, d), e in found.items() if d == domains[0] and p not in scores.NETWORKS)
                own = found[name, domains[0]]["mae"]
                verdict = "better than" if own < floor else "NOT better than"
                notes.append(
                    f"{sequence}: {network_name(name)}'s base is {verdict} the best interpolation on {domains[0]} ({own:.1f} against {floor:.1f} mm)."
                )
        columns = tuple(Column(METRIC_NAMES[m], d, "mm", 1) for d in domains for m in ("mae", "rmse"))
        tables.append(
            Table(
                name=sequence,
                title=f"Test frames, {sequence}",
                heads=("Predictor",),
                columns=columns,
                lines=tuple(lines),
            )
        )
    return {"tables": tables, "findings": notes}


Maker = Callable[[Experiment, Finished, Store, bool], dict[str, Any]]
MAKERS: dict[str, Maker] = {
    "set-sizes-indoor": _set_sizes,
    "set-sizes-outdoor": _set_sizes,
    "ablations": _ablations,
    "training-time": _timing,
    "joint": _joint,
    "zero-shot": _zero_shot,
    "foundation": _foundation,
    "classical": _classical,
    "forgetting-curve": drawn.curve,
    "tsne": drawn.tsne,
    "qualitative": drawn.qualitative,
}
