"""The kept places are enough: a network, a domain or an input that is a little wrong fails the thinned fixtures too."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import test_parity_published as whole
import thin_fixtures
import torch
import torch.nn.functional as F
from test_parity_published import Published
from torch import nn

NETWORKS = ("kbnet_void", "voiced_kitti", "fusionnet_void")


@torch.no_grad()
def one_filter(p: Published) -> None:
    """One filter of hundreds, in the middle of the network, is 2 % too large."""
    weights = [m.weight for m in p.model.backbone.modules() if isinstance(m, nn.Conv2d)]
    weights[len(weights) // 2][3] *= 1.02


@torch.no_grad()
def transposed(p: Published) -> None:
    """The projection of one layer is taken as the files have it (docs/ambiguities.md, 5)."""
    chosen = p.model.domain(p.names[-1]).sets["skip2_depth"].W
    chosen.copy_(chosen.T.clone())


@torch.no_grad()
def one_prototype(p: Published) -> None:
    """One number of one prototype."""
    p.model.domain(p.active).sets["skip3_image"].P[2, 5] += 0.5


@pytest.mark.parametrize("slip", [one_filter, transposed, one_prototype])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_small_slip_is_noticed(name: str, slip: Callable[[Published], None], tmp_path: Path) -> None:
    published = Published(name, tmp_path)
    slip(published)
    with pytest.raises(AssertionError, match="case0"):
        whole.test_every_stored_output_is_reproduced(published)


@pytest.mark.parametrize("name", NETWORKS)
def test_activations_with_another_slope_are_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published, right = Published(name, tmp_path), F.leaky_relu
    monkeypatch.setattr(F, "leaky_relu", lambda x, slope: right(x, slope + 0.001))
    with pytest.raises(AssertionError, match="case0"):
        whole.test_every_stored_output_is_reproduced(published)


def test_a_gradient_that_passes_the_stop_is_noticed(tmp_path: Path) -> None:
    """Prototypes that also learn through the keys (Eq. 7 without StopGrad) have the same outputs."""
    published = Published("kbnet_void", tmp_path)
    for domain in published.names:
        for prototypes in published.model.domain(domain).sets.values():
            prototypes.stop_gradient = False
    whole.test_every_stored_output_is_reproduced(published)
    with pytest.raises(AssertionError, match="token_pools"):
        whole.test_every_stored_gradient_is_reproduced(published)


def test_kept_places_lie_in_every_row_column_and_channel() -> None:
    shape = (2, 96, 17, 25)
    places = np.arange(0, math.prod(shape), thin_fixtures.stride(math.prod(shape), shape))
    assert 300 < len(places) <= thin_fixtures.LIMIT
    for side, found in zip(shape, np.unravel_index(places, shape), strict=True):
        assert set(found) == set(range(side))


def test_thinning_keeps_inputs_and_numbers(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    frame, depth = random.integers(0, 255, (2, 3, 40, 60), np.uint8), random.random((2, 1, 40, 60)).astype(np.float32)
    (tmp_path / "full").mkdir()
    for name in ("a", "b"):
        np.savez(tmp_path / "full" / f"{name}.npz", **{"case0/in/image0": frame, "case0/out/depth": depth})
        (tmp_path / "full" / f"{name}.json").write_text("{}")
    thin_fixtures.main(tmp_path / "full", tmp_path / "thin")
    first, second = (np.load(tmp_path / "thin" / f"{name}.npz") for name in ("a", "b"))
    rule = json.loads((tmp_path / "thin" / "a.json").read_text())["sampled"]["case0/out/depth"]
    assert np.array_equal(first["case0/in/image0"], frame)
    assert np.array_equal(first["case0/out/depth__sample"], depth.reshape(-1)[:: rule["stride"]])
    assert first["case0/out/depth__sample"].dtype == np.float32
    assert first["case0/out/depth__stat"] == pytest.approx([depth.mean(), depth.std(), depth.max()])
    assert "case0/in/image0" not in second.files  # named, not stored again
    assert json.loads((tmp_path / "thin" / "b.json").read_text())["same"]["case0/in/image0"] == ["a", "case0/in/image0"]
