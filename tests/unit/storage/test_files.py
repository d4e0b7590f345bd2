"""Files that survive: writes are all or nothing and reads notice damage."""

import errno
import hashlib
import json
import os
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from protodepth.errors import CheckpointError
from protodepth.storage import files


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a" / "f.bin"
    files.write_bytes(path, b"old")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    for place in ((os, "fsync"), (Path, "replace"), (Path, "open")):
        with monkeypatch.context() as patch:
            patch.setattr(*place, full)
            with pytest.raises(OSError, match="No space"):
                files.write_bytes(path, b"new")
        assert path.read_bytes() == b"old"
        assert [p.name for p in path.parent.iterdir()] == ["f.bin"]


def test_data_is_on_disk_before_the_name_points_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order that survives a power cut: flush the file, rename it, flush the folder."""
    events: list[str] = []
    replace = Path.replace

    def flush(number: int) -> None:
        events.append("flush folder" if os.path.isdir(f"/proc/self/fd/{number}") else "flush file")  # noqa: PTH112

    def rename(self: Path, target: Path) -> Path:
        events.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(Path, "replace", rename)
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to tell a folder from a file")
    files.write_bytes(tmp_path / "f", b"x")
    assert events == ["flush file", "rename", "flush folder"]


def test_the_stated_checksum_is_the_one_of_the_file(tmp_path: Path) -> None:
    sha256 = files.write_tensors(tmp_path / "t", {"a": torch.arange(4)})
    assert sha256 == hashlib.sha256((tmp_path / "t").read_bytes()).hexdigest()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_tensors_of_every_type_come_back_exactly(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"t": (torch.randn(3, 5).mT * 9).to(dtype), "scalar": torch.tensor(1, dtype=dtype)}
    back = files.read_tensors(tmp_path / "t", files.write_tensors(tmp_path / "t", tensors))
    for name, tensor in tensors.items():
        assert back[name].dtype == dtype
        assert torch.equal(back[name], tensor)


def test_only_what_loses_nothing_is_written_in_half_the_bytes() -> None:
    exact, inexact = files.rounded(torch.randn(50)), torch.tensor([1.0, 0.1])
    tensors = {"exact": exact, "inexact": inexact, "huge": torch.tensor([1e6]), "nan": torch.tensor([torch.nan]),
               "count": torch.tensor([3])}  # fmt: skip
    compact = files.compact(tensors)
    assert {name for name, t in compact.items() if t.dtype == torch.float16} == {"exact"}
    assert torch.equal(compact["exact"].float(), exact)
    assert all(compact[name] is tensors[name] for name in tensors if name != "exact")


def test_tensors_come_back_in_the_order_they_were_written_in(tmp_path: Path) -> None:
    """Domains and buffers are named in it; safetensors itself gives another order in every process."""
    names = [f"{name}.{n}" for name in ("room", "warehouse", "atrium", "corridor") for n in (2, 0, 1)]
    kinds = [torch.float32, torch.uint8, torch.int64]
    tensors = {name: torch.zeros(n % 5 + 1, dtype=kinds[n % 3]) for n, name in enumerate(names)}
    sha256 = files.write_tensors(tmp_path / "t", tensors)
    assert list(files.read_tensors(tmp_path / "t", sha256)) == names


def test_tensors_of_a_file_that_states_no_order_come_by_name(tmp_path: Path) -> None:
    data = save({name: torch.zeros(1) for name in "gcaehbfd"})
    (tmp_path / "t").write_bytes(data)
    assert list(files.read_tensors(tmp_path / "t", hashlib.sha256(data).hexdigest())) == list("abcdefgh")


def test_a_file_that_is_no_safetensors_is_an_error_even_with_its_own_checksum(tmp_path: Path) -> None:
    for data in (b"", b"hello", b"\xff" * 100):
        (tmp_path / "t").write_bytes(data)
        with pytest.raises(CheckpointError, match="not a safetensors file"):
            files.read_tensors(tmp_path / "t", hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "missing"),
        ("{", "not readable JSON"),
        ("[1]", "holds a list"),
        ("\x00", "not readable JSON"),
        ("3", "holds a int"),
    ],
)
def test_json_that_is_no_object_is_an_error(tmp_path: Path, text: str | None, reason: str) -> None:
    if text is not None:
        (tmp_path / "j").write_text(text)
    with pytest.raises(CheckpointError, match=reason):
        files.read_json(tmp_path / "j")


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"\xff\xfe{}")
    with pytest.raises(CheckpointError, match="not readable JSON"):
        files.read_json(tmp_path / "j")


def test_json_comes_back(tmp_path: Path) -> None:
    value = {"a": [1, 2.5, None, "é"], "b": {"c": True}}
    files.write_json(tmp_path / "j", value)
    assert files.read_json(tmp_path / "j") == value
    assert json.loads((tmp_path / "j").read_text()) == value


def test_a_fingerprint_depends_on_every_name_type_shape_value_and_setting() -> None:
    tensor = torch.arange(6.0)
    start = files.fingerprint({"a": 1}, {"t": tensor})
    assert start == files.fingerprint({"a": 1}, {"t": tensor.clone()})
    others = [
        ({"a": 2}, {"t": tensor}),
        ({"a": 1}, {"u": tensor}),
        ({"a": 1}, {"t": tensor.double()}),
        ({"a": 1}, {"t": tensor.reshape(2, 3)}),
        ({"a": 1}, {"t": tensor + torch.tensor([0, 0, 0, 0, 0, 1e-6])}),
        ({"a": 1}, {"t": tensor, "u": torch.empty(0)}),
    ]
    prints = [files.fingerprint(config, state) for config, state in others]
    assert len({start, *prints}) == len(others) + 1


def test_a_state_must_fit_name_by_name_and_nothing_is_loaded_if_it_does_not() -> None:
    module = torch.nn.Linear(2, 3)
    good = {k: v.clone() + 1 for k, v in module.state_dict().items()}
    before = module.weight.clone()
    cases = {
        "no tensor 'bias'": {"weight": good["weight"]},
        r"shape \(3, 3\), expected \(3, 2\)": {**good, "weight": torch.zeros(3, 3)},
        "unexpected tensor 'extra'": {**good, "extra": torch.zeros(1)},
    }
    for reason, state in cases.items():
        with pytest.raises(CheckpointError, match=reason):
            files.load_state(module, state, Path("somewhere"))
        assert torch.equal(module.weight, before)
    files.load_state(module, good, Path("somewhere"))
    assert torch.equal(module.weight, before + 1)


def test_a_sealed_file_with_any_hole_is_refused(tmp_path: Path) -> None:
    """Also one that takes the words by which a seal is known."""
    path = tmp_path / "j"
    files.write_sealed(path, {"step": 3, "counts": {"skipped": 0}, "list": [1, 2.5, None]})
    good = path.read_bytes()
    assert files.read_sealed(path, ()) == {"step": 3, "counts": {"skipped": 0}, "list": [1, 2.5, None]}
    dice = random.Random(0)
    for start in range(len(good)):
        lengths = (*range(1, 9), *dice.sample(range(9, 60), 8))  # every short hole, and some of the longer ones
        for end in (start + length for length in lengths if start + length < len(good)):
            path.write_bytes(good[:start] + good[end:])
            try:
                found = files.read_sealed(path, ("step", "counts", "list"))
            except CheckpointError:
                continue
            assert found == {"step": 3, "counts": {"skipped": 0}, "list": [1, 2.5, None]}, (start, end)


def test_a_sealed_file_of_a_later_version_and_files_that_are_not_what_was_written_are_said(tmp_path: Path) -> None:
    later = {"format_version": files.SEALED + 1, "step": 3}
    files.write_json(tmp_path / "later", {**later, "sealed": files._seal(later)})
    with pytest.raises(CheckpointError, match="update protodepth"):
        files.read_sealed(tmp_path / "later", ())
    digest = files.write_bytes(tmp_path / "a", b"numbers")
    assert files.check_file(tmp_path / "a", digest) == tmp_path / "a"
    (tmp_path / "a").write_bytes(b"Numbers")
    with pytest.raises(CheckpointError, match="edited or is damaged"):
        files.check_file(tmp_path / "a", digest)
    with pytest.raises(CheckpointError, match="cannot be read"):
        files.check_file(tmp_path / "b", digest)


def test_a_file_without_a_seal_is_taken_with_a_word_if_an_earlier_version_could_have_written_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files.write_json(tmp_path / "a", {"step": 3})
    assert files.read_sealed(tmp_path / "a", ("step",)) == {"step": 3}
    assert "has no checksum" in caplog.text
    with pytest.raises(CheckpointError, match="edited or is damaged"):
        files.read_sealed(tmp_path / "a", ("file",))


def test_a_full_disk_is_said_with_the_file_that_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.json'"):
        files.write_json(tmp_path / "a.json", {})
    assert list(tmp_path.iterdir()) == []
