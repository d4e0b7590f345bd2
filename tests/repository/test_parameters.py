"""docs/parameters.md: every count in it is made here again from the code."""

import os

import pytest
import torch

from helpers.documents import ROOT
from protodepth.backbones.base import backbones, count_parameters
from protodepth.backbones.posenet import PoseNet
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig

PAGE = ROOT / "docs" / "parameters.md"
# N_I, N_z -> what the paper prints: millions and per cent (its two tables agree where both have a row)
PRINTED = {
    (1, 1): (0.24, 3.5),
    (5, 5): (0.25, 3.6),
    (10, 5): (0.25, 3.6),
    (10, 10): (0.25, 3.7),
    (25, 10): (0.27, 3.9),
    (25, 25): (0.28, 4.0),
    (100, 100): (0.38, 5.5),
}
TABLES = {
    (1, 1): "indoor, outdoor",
    (5, 5): "indoor",
    (10, 5): "indoor (chosen)",
    (10, 10): "indoor, outdoor",
    (25, 10): "outdoor (chosen)",
    (25, 25): "outdoor",
    (100, 100): "indoor, outdoor",
}
NETWORKS = {
    "kbnet": ("void", "kitti", "small"),
    "voiced": ("void", "small"),
    "scaffnet": ("void", "void_nospp", "small"),
    "fusionnet": ("void", "void_nospp", "small"),
    "uformer": ("full", "small"),
    "lite": ("indoor",),
}


@pytest.fixture(scope="module")
def models():
    made = {}
    for name, presets in NETWORKS.items():
        for preset in presets:
            with torch.device("meta"):  # shapes without numbers
                backbone = backbones.get(name).from_preset(preset)
            made[name, preset] = ProtoDepth(backbone)
    return made


def count(model: ProtoDepth, sizes: tuple[int, int], **options) -> int:
    config = PrototypeConfig(image_size=sizes[0], depth_size=sizes[1], **options)
    model.add_domain("x", config=config)
    total = model.overhead().domains["x"]
    model.delete_domain("x")
    return total


def row(*cells: object) -> str:
    return f"| {' | '.join(str(c) for c in cells)} |"


def paper_rows(models) -> list[str]:
    """The paper's tables: KBNet with 6,957,764 parameters."""
    model = models["kbnet", "void"]
    every = tuple(s.name for s in model.backbone.latent_specs)
    width = sum(s.channels**2 for s in model.backbone.latent_specs if s.name in model.backbone.default_layers)
    total = model.overhead().backbone
    rows = []
    for sizes, (millions, per_cent) in PRINTED.items():
        full, nine = count(model, sizes), count(model, sizes, layers=every)
        half, low = full - width // 2, count(model, sizes, projection_rank=32)
        counts = [f"{n:,} ({100 * n / total:.2f} %)" for n in (full, nine, half, low)]
        rows.append(row(*sizes, TABLES[sizes], *counts, f"{millions:.2f} M ({per_cent} %)"))
    return rows


def network_rows(models) -> list[str]:
    rows = []
    for (name, preset), model in models.items():
        total = model.overhead().backbone
        counts = [f"{n:,} ({100 * n / total:.1f} %)" for n in (count(model, sizes) for sizes in PRINTED)]
        rows.append(row(name, preset, f"{total:,}", len(model.backbone.default_layers), *counts))
    return rows


def layer_rows(models) -> list[str]:
    model = models["kbnet", "void"]
    every = tuple(s.name for s in model.backbone.latent_specs)
    model.add_domain("x", config=PrototypeConfig(image_size=10, depth_size=5, layers=every))
    counts = model.overhead().layers["x"]
    model.delete_domain("x")
    return [row(s.name, s.channels, f"{counts[s.name]:,}") for s in model.backbone.latent_specs]


def pose_rows() -> list[str]:
    return [row(kind, f"{count_parameters(PoseNet(kind)):,}") for kind in ("resnet18", "posenet", "small")]


def test_the_page_states_what_the_code_counts(models):
    page = PAGE.read_text()
    expected = [*paper_rows(models), *network_rows(models), *layer_rows(models), *pose_rows()]
    missing = [line for line in expected if line not in page]
    if os.environ.get("PROTODEPTH_UPDATE_DOCS"):
        PAGE.write_text(refreshed(page, missing))
        return
    advice = "run with PROTODEPTH_UPDATE_DOCS=1 to rewrite these rows"
    assert not missing, f"docs/parameters.md is out of date: {advice}\n" + "\n".join(missing)


def refreshed(page: str, rows: list[str]) -> str:
    """The page with each row in the place of the old one that begins with the same two cells."""
    by_start = {tuple(r.split("|")[1:3]): r for r in rows}
    return "\n".join(by_start.get(tuple(line.split("|")[1:3]), line) for line in page.splitlines()) + "\n"


def test_half_of_W_reproduces_every_printed_figure_and_the_full_one_does_not(models):
    model = models["kbnet", "void"]
    width = sum(s.channels**2 for s in model.backbone.latent_specs if s.name in model.backbone.default_layers)
    total = model.overhead().backbone
    for sizes, (millions, per_cent) in PRINTED.items():
        full = count(model, sizes)
        half = full - width // 2
        assert round(half / 1e6, 2) == millions
        assert round(100 * half / total, 1) == per_cent
        assert full > 1.6 * millions * 1e6
