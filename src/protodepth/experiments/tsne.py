"""The figure of descriptors: those of samples and of domains in the plane."""

from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from protodepth.data.batches import collate
from protodepth.data.frame import evenly
from protodepth.errors import ConfigError
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import Experiment, Finished
from protodepth.experiments.jobs import Job
from protodepth.experiments.planning import Planner, Training
from protodepth.experiments.scores import network_name
from protodepth.experiments.trainings import load_stage, open_of
from protodepth.report.bench_page import Figure
from protodepth.report.charts import scatter_chart


def plan(experiment: Experiment, plan: Planner) -> list[Cell]:
    cells = []
    for sequence in experiment.sequences:
        for backbone in experiment.networks(plan.options):
            row = Training(sequence=sequence, backbone=backbone, method="protodepth", seed=plan.options.seeds[0])
            training = plan.training(row)
            cells.append(Cell(kind="descriptors", label=training.label, inputs={}, needs=(training,)))
    return cells


DESCRIBED_FRAMES = 100  # of each domain at most, for the picture of descriptors


def run(job: Job) -> dict[str, Any]:
    """t-SNE (cosine) of the sample descriptors of val frames together with the domain descriptors."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise ConfigError("the picture of descriptors needs scikit-learn: pip install 'protodepth[data]'") from None
    (training,) = job.cell.needs
    domains = open_of(training)
    model = load_stage(job.store, training, domains, domains[-1].name).model
    rows, labels = [], []
    for domain in domains:
        for index in evenly(len(domain.val), DESCRIBED_FRAMES):
            rows.append(normalize(model.predict_batch(collate([domain.val[index]]), "base").descriptor, dim=-1))
            labels.append(domain.name)
    known, descriptors = model.descriptors()
    names = sorted(known, key=[d.name for d in domains].index)  # a stored state does not keep the order of learning
    descriptors = descriptors[[known.index(n) for n in names]]
    every = torch.cat([*rows, normalize(descriptors.detach(), dim=-1)]).double().cpu().numpy()
    plane = TSNE(
        metric="cosine", init="random", perplexity=min(30.0, (len(every) - 1) / 3), random_state=0
    ).fit_transform(every)
    samples, own = every[: len(labels)], every[len(labels) :]
    chosen = [names[i] for i in (samples @ own.T).argmax(1)]
    right = float(np.mean([a == b for a, b in zip(chosen, labels, strict=True)]))
    return {
        "points": plane[: len(labels)].astype(float),
        "labels": labels,
        "marks": plane[len(labels) :].astype(float),
        "mark_labels": names,
        "right": right,
        "cosines": (own @ own.T).round(4),
    }


def show(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    figures, notes = [], []
    for cell, r in finished:
        svg = scatter_chart(np.array(r["points"]), r["labels"], np.array(r["marks"]), r["mark_labels"])
        title = (
            "Sample descriptors of val frames (dots) and domain descriptors (crosses), "
            f"{network_name(cell.label['backbone'])}, t-SNE"
        )
        figures.append(Figure(f"{cell.label['sequence']}-{cell.label['backbone']}", title, svg=svg))
        notes.append(
            f"{network_name(cell.label['backbone'])}: the nearest descriptor is that of the frame's own domain for "
            f"{100 * r['right']:.1f} % of the val frames."
        )
    return {"figures": figures, "findings": notes}
