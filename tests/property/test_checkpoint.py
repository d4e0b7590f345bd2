"""Whatever is written comes back exactly, and whatever was changed is noticed."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from protodepth.errors import CheckpointError
from protodepth.storage import files

FEW = settings(max_examples=40, deadline=None)
NAMES = st.text("abcdefg.0_", min_size=1, max_size=8)
TYPES = st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    shapes = nps.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return {n: torch.from_numpy(np.array(draw(nps.arrays(draw(TYPES), draw(shapes))))) for n in names}


@FEW
@given(tensors())
def test_tensors_come_back_bit_for_bit(given_tensors: dict[str, torch.Tensor]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        back = files.read_tensors(path, files.write_tensors(path, given_tensors))
    assert back.keys() == given_tensors.keys()
    for name, tensor in given_tensors.items():
        assert back[name].dtype == tensor.dtype
        assert back[name].shape == tensor.shape
        assert back[name].numpy().tobytes() == tensor.numpy().tobytes()  # NaN and -0.0 too


@FEW
@given(tensors(), st.data())
def test_any_other_bytes_are_refused(given_tensors: dict[str, torch.Tensor], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        sha256 = files.write_tensors(path, given_tensors)
        good = path.read_bytes()
        kind = data.draw(st.sampled_from(["flip", "cut", "add"]))
        at = data.draw(st.integers(0, len(good) - 1))
        bad = bytearray(good)
        if kind == "flip":
            bad[at] ^= data.draw(st.integers(1, 255))
        elif kind == "cut":
            del bad[at:]
        else:
            bad[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        path.write_bytes(bytes(bad))
        if bytes(bad) != good:
            with pytest.raises(CheckpointError, match="checksum"):
                files.read_tensors(path, sha256)


@FEW
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_json_comes_back(value: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files.write_json(Path(folder) / "j", value)
        assert files.read_json(Path(folder) / "j") == value


@FEW
@given(st.binary(max_size=60))
def test_bytes_that_are_no_json_object_are_one_kind_of_error(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "j").write_bytes(data)
        try:
            value = files.read_json(Path(folder) / "j")
        except CheckpointError:
            return
        assert isinstance(value, dict)


@FEW
@given(tensors())
def test_a_fingerprint_does_not_depend_on_the_order_of_the_names(given_tensors: dict[str, torch.Tensor]) -> None:
    turned = dict(reversed(given_tensors.items()))
    assert files.fingerprint({"a": 1, "b": 2}, given_tensors) == files.fingerprint({"b": 2, "a": 1}, turned)
