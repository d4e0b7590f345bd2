"""What holds for every world, seed and size."""

import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from protodepth.data.worlds.worlds import WORLDS, render


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(WORLDS)),
    seed=st.integers(0, 2**32),
    size=st.tuples(st.integers(16, 32), st.integers(16, 48))
    .map(sorted)
    .map(tuple),  # a taller picture sees nearer ground
)
def test_every_frame_is_whole(name: str, seed: int, size: tuple[int, int]) -> None:
    spec = WORLDS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no division by zero, no overflow
        frame = render(spec, seed, size)
    truth, sparse = frame.ground_truth, frame.sparse_depth
    assert truth is not None
    assert frame.image.shape == (*size, 3)
    assert {n.shape for n in frame.neighbours} == {(*size, 3)}
    assert np.isfinite(truth).all()
    assert np.isfinite(sparse).all()
    assert truth[truth > 0].min() > (0.3 if spec.indoor else 1.5)
    assert truth.max() <= spec.max_depth
    assert (truth > 0).all() or not spec.indoor
    assert (sparse >= 0).all()
    assert (sparse > 0).any()
    assert not sparse[truth == 0].any()
    for pose in frame.poses:
        np.testing.assert_allclose(pose[:3, :3] @ pose[:3, :3].T, np.eye(3), atol=1e-12)
        np.testing.assert_array_equal(pose[3], [0, 0, 0, 1])
    assert frame.image.std() > 3  # there is something to see
