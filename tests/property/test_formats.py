"""Files of every format version, as the program of that time wrote them, are read by the program of today.

``tests/formats/1``: before JSON carried checksums; ``2``: states, results and cells are sealed; ``3``: descriptions of
models and domains too (the others are as in 2).  Never written again, only added to.
"""

import shutil
from pathlib import Path

import pytest
import torch

from conftest import tiny_model
from helpers.bench_cells import cell
from protodepth.data.frame import Domain
from protodepth.experiments.cells import Store
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import build
from protodepth.model import ProtoDepth
from protodepth.report import run
from protodepth.storage import files, folders
from protodepth.training.fit import build_optimiser
from protodepth.training.schedule import Schedule
from protodepth.training.state import TrainingState

FORMATS = Path(__file__).parents[1] / "formats"
VERSIONS = sorted(p.name for p in FORMATS.iterdir())


def test_the_version_of_today_is_among_them() -> None:
    assert str(files.SEALED) in VERSIONS
    assert str(files.FORMAT_VERSION) in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_model_and_its_domain_load(version: str, tmp_path: Path) -> None:
    shutil.copytree(FORMATS / version / "model", tmp_path / "model")
    model = ProtoDepth.from_pretrained(tmp_path / "model")
    assert model.domains == ("room",)
    assert model.fingerprint() == tiny_model().fingerprint()
    again = tiny_model()
    assert again.load_domain(tmp_path / "model" / "domains" / "room") == "room"


@pytest.mark.parametrize("name", folders.bundled())
def test_the_bundled_models_are_of_the_version_of_today(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is told at every command that the settings of the default model have no checksum."""
    places = [folders.BUNDLED / name / "config.json", *(folders.BUNDLED / name).glob("domains/*/meta.json")]
    for path in places:
        kind = "model" if path.name == "config.json" else "domain"
        assert files.read_description(path, kind)["format_version"] == files.FORMAT_VERSION
    ProtoDepth.from_pretrained(name)
    assert caplog.text == ""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_training_state_is_gone_on_with(version: str, tmp_path: Path, room: Domain) -> None:
    shutil.copytree(FORMATS / version / "state", tmp_path / "state")
    model = tiny_model()
    objective = Objective(ObjectiveConfig(reduction="relative"), pose=None, max_depth=8.0)
    method = build("protodepth", model, objective, model.config)
    method.begin_domain(room, lambda m, d: None)
    optimiser = build_optimiser(method, Schedule(steps=2))
    about = {"method": "protodepth", "domain": "room", "seed": 0, "steps": 2}
    state = TrainingState(tmp_path / "state", method, optimiser, torch.amp.GradScaler("cpu", enabled=False), about)
    assert state.load() == 2
    stored = ProtoDepth.from_pretrained(FORMATS / version / "model")
    a, b = stored.domain("room").state_dict(), model.domain("room").state_dict()
    assert all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("version", VERSIONS)
def test_results_and_cells_are_read(version: str) -> None:
    document, samples = run.read_run(FORMATS / version / "run")
    assert document["rows"]
    assert samples == []
    assert Store(FORMATS / version / "bench").result(cell("kept", steps=1)) == {"x": 1.5}
