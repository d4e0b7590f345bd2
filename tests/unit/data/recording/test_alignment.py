"""Whether depth and pictures belong together, from their edges."""

import numpy as np
import pytest

from protodepth.data.recording import alignment


@pytest.mark.parametrize(
    ("as_it_is", "flipped", "said"), [(0.48, 0.55, False), (0.48, 0.62, True), (0.60, 0.62, False)]
)
def test_a_flip_must_fit_and_fit_clearly_better(
    monkeypatch: pytest.MonkeyPatch, as_it_is: float, flipped: float, said: bool
) -> None:
    """A few points of a small frame fit no way; the best of three ways that do not fit is no finding."""
    depth = np.zeros((4, 4))
    depth[0, 0] = 1.0
    monkeypatch.setattr(alignment, "_agreement", lambda grey, d: flipped if d[-1, 0] else as_it_is)
    verdict = alignment.better_flip([(np.zeros((4, 4)), depth)] * 6)
    assert verdict == (("turned upside down", flipped, pytest.approx(as_it_is)) if said else None)
