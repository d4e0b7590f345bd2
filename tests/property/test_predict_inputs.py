"""``predict`` in Python, given anything: one of our errors, or finite depth of the picture's size."""

import os
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import shake, tiny_model
from protodepth.errors import ProtoDepthError
from protodepth.model import ProtoDepth

FEW, MANY = 150, int(os.environ.get("PROTODEPTH_EXAMPLES", "2000"))
EXTREME = (
    *(np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 1e39, 1e300, -1.0, 0.0, 65535.0, 1e9),
    *(255.0, 1.0, 0.5, 8.0, 0.1, 8.0001),
)
KINDS: tuple[Any, ...] = (
    *(np.uint8, np.int8, np.uint16, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64, np.bool_),
    *(np.complex64, object, "U3", "M8[s]", ">f4", "V4"),
)
STRANGE: tuple[Any, ...] = (
    *(None, "1,2,3,4", "9,9,4,4", {}, [], [[1]], [[1, 2], [3]], [True] * 4, ["1_0"] * 4, 5, 1.5, "file", b"file"),
    *({"fx": 9, "fy": 9, "cx": 4, "cy": "x"}, np.zeros((3, 4)), np.float64(2), object(), torch.zeros(3, 3)),
)
numbers = st.one_of(st.sampled_from(EXTREME), st.floats(width=64))
sides = st.sampled_from([8, 9, 16, 31, 32, 33, 40] * 4 + [0, 1, 2, 7])
rarely = st.sampled_from([False] * 14 + [True])


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...], kind: Any, top: float) -> Any:
    """Of the right kind more often than not, with a few extreme numbers, as an array or something like it."""
    dice = np.random.default_rng(draw(st.integers(0, 2**31)))
    values = np.asarray(dice.random(shape) * (draw(st.sampled_from(EXTREME)) if draw(rarely) else top))
    if top < 255:  # metres: few pixels have a point
        values = np.asarray(np.where(dice.random(shape) < 0.9, 0, values))
    for _ in range(draw(st.sampled_from([0] * 6 + [1, 3])) if values.size else 0):
        values.reshape(-1)[dice.integers(values.size)] = draw(numbers)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            values = values.astype(draw(st.sampled_from([kind] * 160 + list(KINDS))))
        except (TypeError, ValueError):
            values = values.astype(kind)
    form = draw(st.integers(0, 12))
    if form == 0:
        return values.tolist()
    if form == 1 and values.dtype.kind == "f":
        return torch.from_numpy(np.array(values, np.float32))
    if form == 2 and values.dtype.kind == "f":
        return np.ma.masked_invalid(values)
    return values[::-1] if form == 3 and values.ndim else np.asfortranarray(values)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, ...]:
    h, w = draw(sides), draw(sides)
    pictures = [(h, w, 3)] * 60 + [(h, w), (3, h, w), (h, w, 4), (h, w, 1), (1, h, w, 3), (2, h, w, 3), (), (0,), (h,)]
    maps = [(h, w)] * 60 + [(h, w, 1), (1, h, w), (2, h, w), (w, h), (h + 1, w), (), (0,), (2 * h, 2 * w)]
    image = draw(arrays(draw(st.sampled_from(pictures)), np.uint8, 256.0))
    sparse = draw(arrays(draw(st.sampled_from(maps)), np.float32, 8.0))
    K: Any = np.array([[w + 1, 0, w / 2], [0, w + 1, h / 2], [0, 0, 1.0]])
    for _ in range(draw(st.sampled_from([0] * 8 + [1, 2]))):
        K[draw(st.integers(0, 2)), draw(st.integers(0, 2))] = draw(numbers)
    if draw(st.booleans()):
        K = [K[0, 0], K[1, 1], K[0, 2], K[1, 2]]
    three = [draw(st.sampled_from(STRANGE)) if draw(rarely) else x for x in (image, sparse, K)]
    return *three, draw(st.sampled_from([None, "room", "base"] * 6 + ["nope", 5, "", ["room"]]))


def attack(model: ProtoDepth, count: int) -> Counter[str]:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(cases())
    def ask(case: tuple[Any, ...]) -> None:
        image, sparse, K, domain = case
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                answer = model.predict(image, sparse, K, domain=domain)
            except ProtoDepthError as error:
                seen["refused"] += bool(str(error))
                return
        for prediction in answer if isinstance(answer, list) else [answer]:
            seen["answered"] += 1
            assert prediction.depth.ndim == 2
            assert np.isfinite(prediction.depth).all()
            assert (prediction.depth > 0).all()

    ask()
    return seen


@pytest.fixture(scope="module")
def model() -> ProtoDepth:
    made = tiny_model()
    made.add_domain("room")
    shake(made, "room")
    return made.eval()


def test_whatever_is_given_the_depth_is_finite_or_it_is_said_why_not(model: ProtoDepth) -> None:
    seen = attack(model, FEW)
    assert seen["answered"] > 5
    assert seen["refused"] > 5


@pytest.mark.slow
def test_two_thousand_hostile_inputs_of_predict(model: ProtoDepth) -> None:
    print(attack(model, MANY))
