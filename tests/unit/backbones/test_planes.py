"""Local planes: moments about any origin, planes continued between the points."""

import numpy as np
import pytest
import torch

from protodepth.backbones.planes import MOMENTS, gathered, local_planes, moved, pyramid


def test_moments_moved_are_those_about_the_new_origin() -> None:
    rng = np.random.default_rng(0)
    x, y, v = rng.normal(size=(3, 50))
    q = np.exp(-v)

    def moments(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        one = np.ones_like(x)
        places = (one, x, y, x * x, x * y, y * y)
        return np.array([t.sum() for t in (*places, v, v * x, v * y, v * v, q, q * x, q * y)])

    found = moved(0.7, -1.3, 2.0).double().numpy() @ moments(x, y)
    assert np.allclose(found, moments((x - 0.7) / 2, (y + 1.3) / 2), atol=1e-4)


@pytest.mark.parametrize(("kind", "guess"), [("log", 2), ("inverse", 3)])
def test_planes_of_log_depth_and_of_inverse_depth_are_continued_between_the_points(kind: str, guess: int) -> None:
    """An oracle that knows nothing of pyramids: the plane itself."""
    height, width = 96, 128
    y, x = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
    affine = 0.2 * x - 0.3 * y
    v = (affine if kind == "log" else -(1 + affine).log())[None, None]
    chosen = (torch.rand(1, 1, height, width, generator=torch.Generator().manual_seed(1)) < 0.05).float()
    unshuffle = torch.nn.functional.pixel_unshuffle
    planes = local_planes(unshuffle(v * chosen, 2), unshuffle(chosen, 2), *pyramid())
    truth = torch.nn.functional.avg_pool2d(v, 2)
    inner = (slice(None), slice(None), slice(4, -4), slice(4, -4))
    assert float((planes.guesses[:, guess : guess + 1] - truth)[inner].abs().max()) < 0.01
    constant = float((planes.guesses[:, 1:2] - truth)[inner].abs().max())
    assert constant > 0.03, "a test that a constant would pass proves nothing"


def test_one_convolution_gathers_the_moments_that_sums_over_the_pixels_give() -> None:
    values = torch.randn(1, 4, 3, 5, generator=torch.Generator().manual_seed(0))
    of = {"": torch.ones_like(values), "v": values, "vv": values**2, "q": (-values).exp()}
    x, y = (torch.tensor(c).view(1, 4, 1, 1) for c in ((-0.25, 0.25, -0.25, 0.25), (-0.25, -0.25, 0.25, 0.25)))
    plain = torch.cat([(of[name] * x**i * y**j).sum(1, keepdim=True) for name, i, j in MOMENTS], 1)
    fast = torch.nn.functional.conv2d(torch.cat(list(of.values()), 1), gathered())
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-6)
