"""run_sequence: both matrices from one run, by a method whose answers are known."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import tiny_model
from helpers.toy_frames import RULES, constant, frame
from protodepth.backbones.base import backbones
from protodepth.data.arguments import open_domain
from protodepth.data.frame import Domain
from protodepth.errors import ConfigError
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import Method, build
from protodepth.methods.statistics import describe
from protodepth.model import ProtoDepth
from protodepth.storage import files
from protodepth.training import recipes, sequence
from protodepth.training.fit import FitRecord, fit
from protodepth.training.schedule import Schedule
from protodepth.training.sequence import SequenceResult, build_method, run_sequence
from protodepth.types import Batch, BatchPrediction


def toy(name: str, truth: float) -> Domain:
    frames = [frame(truth, name=f"{name}{n}") for n in range(3)]
    return Domain(name=name, train=frames, val=frames[:1], test=frames, rules=RULES)


class Scripted(Method):
    """Predicts 1 m plus a tenth for each domain learned so far if the domain is given, plus two tenths if not."""

    name = "scripted"
    chooses = True

    def __init__(self) -> None:
        model = tiny_model()
        super().__init__(model, Objective(ObjectiveConfig()), None)
        self.calls: list[tuple[str, str]] = []
        self.learned: list[str] = []

    def begin_domain(self, domain: Domain, fit: Any) -> None:
        self.calls.append(("begin", domain.name))

    def end_domain(self, domain: Domain) -> None:
        self.calls.append(("end", domain.name))
        self.learned.append(domain.name)

    def predict(self, batch: Batch, domain: str | None) -> BatchPrediction:
        n = len(self.learned)
        return constant(1 + n * (0.1 if domain is not None else 0.2), self.learned[-1])(batch)


def scripted_fit(method: Any, domain: Domain, each_step: Callable[[int], None] | None) -> FitRecord:
    method.calls.append(("fit", domain.name))
    for step in range(1, 5):
        if each_step is not None:
            each_step(step)
    return FitRecord(steps=4, skipped=1)


def run(**options: Any) -> tuple[SequenceResult, Scripted]:
    method = Scripted()
    domains = [toy(name, 1.0) for name in ("a", "b", "c")]
    return run_sequence(method, domains, scripted_fit, **options), method


def test_row_k_holds_the_errors_on_every_domain_after_domain_k_in_both_settings() -> None:
    result, method = run()
    np.testing.assert_allclose(
        result.incremental.matrices["mae"].values, np.repeat([[100], [200], [300]], 3, 1), rtol=1e-5
    )
    np.testing.assert_allclose(
        result.agnostic.matrices["mae"].values, np.repeat([[200], [400], [600]], 3, 1), rtol=1e-5
    )
    assert method.calls == [
        ("end", "a"),
        ("begin", "b"), ("fit", "b"), ("end", "b"),
        ("begin", "c"), ("fit", "c"), ("end", "c"),
    ]  # fmt: skip
    assert result.domains == ("a", "b", "c")
    assert result.skipped == 2
    assert len(result.seconds) == 2


def test_errors_of_every_test_frame_are_kept_for_the_domains_learned_so_far() -> None:
    scenes = run()[0].scenes
    assert scenes["names"] == [[f"{name}{n}" for n in range(3)] for name in "abc"]
    assert [[len(frames) for frames in row] for row in scenes["incremental"]["mae"]] == [[3], [3, 3], [3, 3, 3]]
    assert scenes["incremental"]["mae"][2][0] == pytest.approx([300] * 3, abs=0.01)
    assert scenes["agnostic"]["rmse"][1][1] == pytest.approx([400] * 3, abs=0.01)


class OneNetwork(Scripted):
    """As Scripted with the domain given, whether it is or not; counts how often it is asked."""

    chooses = False
    asked = 0

    def predict(self, batch: Batch, domain: str | None) -> BatchPrediction:
        self.asked += 1
        return constant(1 + 0.1 * len(self.learned), "base")(batch)


class PreparesFirst(OneNetwork):
    """Needs a training of its own for a first domain that the network knows already, as L2P."""

    def learned_before(self, domain: Domain, fit: Any) -> None:
        self.calls.append(("before", domain.name))
        fit(self, domain)


def test_what_a_method_needs_of_a_known_first_domain_is_made_before_anything_is_measured() -> None:
    method = PreparesFirst()
    result = run_sequence(method, [toy(name, 1.0) for name in "ab"], scripted_fit)
    assert method.calls[:4] == [("before", "a"), ("fit", "a"), ("end", "a"), ("begin", "b")]
    assert "agnostic" not in result.scenes  # the same numbers
    unknown = PreparesFirst()
    run_sequence(unknown, [toy(name, 1.0) for name in "ab"], scripted_fit, pretrained=False)
    assert ("before", "a") not in unknown.calls


class Undeclared(Scripted):
    """Chooses without saying so."""

    chooses = False


def test_what_does_not_choose_is_evaluated_once_for_both_settings() -> None:
    counts = {}
    for kind in (OneNetwork, type("Choosing", (OneNetwork,), {"chooses": True})):
        method = kind()
        result = run_sequence(method, [toy(name, 1.0) for name in "abc"], scripted_fit, curve_every=2)
        counts[kind.chooses] = method.asked
        assert result.incremental.to_json() == result.agnostic.to_json()
        assert {p["setting"] for p in result.curves} == {"incremental", "agnostic"}
        assert result.confusion is None
    stages, domains, looks = 3, 3, 1 + 2 * 2 + 2 + 2 * 3
    assert counts[True] == 2 * (stages * domains + looks)
    assert counts[False] == stages * domains + looks + 2 * stages * domains  # and one frame of each is asked twice


def test_a_method_that_chooses_and_does_not_say_so_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"scripted gives other depth on a without .* chooses = True"):
        run_sequence(Undeclared(), [toy(name, 1.0) for name in "ab"], scripted_fit)


def test_whoever_wants_to_keep_something_is_called_when_a_domain_has_ended() -> None:
    method, seen = Scripted(), []
    domains = [toy(name, 1.0) for name in "abc"]
    run_sequence(method, domains, scripted_fit, after_domain=lambda d: seen.append((d.name, list(method.learned))))
    assert seen == [("a", ["a"]), ("b", ["a", "b"]), ("c", ["a", "b", "c"])]
    assert "end_domain" not in vars(method)


def test_a_sequence_from_scratch_also_learns_the_first_domain() -> None:
    _, method = run(pretrained=False)
    assert [c for c in method.calls if c[0] == "fit"] == [("fit", "a"), ("fit", "b"), ("fit", "c")]


def test_the_curve_has_every_seen_domain_in_both_settings_before_and_during_each_stage() -> None:
    result, _ = run(curve_every=2)
    found = {(p["stage"], p["step"], p["domain"], p["setting"]) for p in result.curves}
    both = ("incremental", "agnostic")
    expected = {(1, 0, "a", s) for s in both} | {(1, n, d, s) for n in (2, 4) for d in "ab" for s in both}
    expected |= {(2, 0, d, s) for d in "ab" for s in both} | {(2, n, d, s) for n in (2, 4) for d in "abc" for s in both}
    assert found == expected
    assert all("mae" in p for p in result.curves)


def test_looking_is_no_training_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that only looks (100 s) and learning (7 s) move."""
    now = [0.0]

    def passing(seconds: float, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            now[0] += seconds
            return work(*args)

        return timed

    monkeypatch.setattr(sequence.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sequence, "curve_points", passing(100.0, sequence.curve_points))
    domains = [toy(name, 1.0) for name in ("a", "b", "c")]
    result = run_sequence(Scripted(), domains, passing(7.0, scripted_fit), curve_every=2)
    assert result.seconds == [7.0, 7.0]
    assert now[0] == 2 * (3 * 100 + 7)  # before a stage and twice while it is learned


def test_a_resumed_sequence_has_the_points_of_the_curve_from_before(tmp_path: Path) -> None:
    whole, _ = run(curve_every=2)
    method, domains = Scripted(), [toy(name, 1.0) for name in ("a", "b", "c")]

    def cut(method: Any, domain: Domain, each_step: Callable[[int], None] | None) -> FitRecord:
        if domain.name == "c":
            each_step(2)  # type: ignore[misc]
            raise KeyboardInterrupt
        return scripted_fit(method, domain, each_step)

    with pytest.raises(KeyboardInterrupt):
        run_sequence(method, domains, cut, curve_every=2, folder=tmp_path)

    def resumed(method: Any, domain: Domain, each_step: Callable[[int], None] | None) -> FitRecord:
        """b is finished, and c goes on after its second step."""
        if domain.name == "c":
            each_step(4)  # type: ignore[misc]
        return FitRecord()

    result = run_sequence(Scripted(), domains, resumed, curve_every=2, folder=tmp_path)
    assert result.curves == whole.curves


def test_the_confusion_counts_test_frames_after_the_last_stage() -> None:
    result, _ = run()
    assert result.chosen_names == ("c",)
    assert result.confusion is not None
    assert result.confusion.tolist() == [[3], [3], [3]]
    assert result.selection_accuracy == pytest.approx(1 / 3)


def test_prototypes_forget_nothing_and_finetuning_does(room: Domain, warehouse: Domain, corridor: Domain) -> None:
    domains, schedule = [room, warehouse, corridor], Schedule(steps=4, rate=2e-2)
    start = tiny_model()
    describe(start, "room", room.train)
    saved = {k: v.clone() for k, v in start.state_dict().items()}
    results = {}
    for name in ("pretrained", "finetune", "protodepth"):
        model = tiny_model()
        describe(model, "room", room.train)
        objective = Objective(ObjectiveConfig(reduction="relative"), max_depth=8.0)
        method = build(name, model, objective, model.config if name == "protodepth" else None)

        def learn(method: Method, domain: Domain, each: Any) -> FitRecord:
            return fit(method, domain, schedule, seed=0, each_step=each)

        results[name] = run_sequence(method, domains, learn)
        if name != "finetune":
            assert all(torch.equal(v, model.state_dict()[k]) for k, v in saved.items())
    zero = {"mae": 0.0, "rmse": 0.0, "imae": 0.0, "irmse": 0.0}
    assert results["protodepth"].incremental.summary()["forgetting"] == zero  # exactly
    assert results["pretrained"].incremental.summary()["forgetting"] == zero
    assert abs(results["finetune"].incremental.summary()["forgetting"]["mae"]) > 1e-3
    ours, frozen = (results[n].incremental.matrices["mae"].values for n in ("protodepth", "pretrained"))
    assert ours[0].tolist() == frozen[0].tolist()  # before anything is learned, and zero-shot
    assert all(ours[k, k] != frozen[k, k] for k in (1, 2))
    assert results["finetune"].confusion is None
    assert results["protodepth"].confusion is not None
    assert results["protodepth"].confusion.sum() == 9
    assert results["protodepth"].extra_parameters == sum(model.overhead().domains.values()) + 3 * 12


def test_a_restored_model_has_its_domains_in_the_order_they_were_learned(tmp_path: Path) -> None:
    names = ["room", "warehouse", "atrium", "corridor", "cellar"]
    first, second = (build("protodepth", tiny_model(), Objective(ObjectiveConfig())) for _ in range(2))
    for name in names:
        first.model.add_domain(name)
    sha256 = files.write_tensors(tmp_path / "state", first.state())
    second.load_state(files.read_tensors(tmp_path / "state", sha256))
    assert list(second.model.domains) == names


# --- a method as the recipe of a sequence says ------------------------------------------------------------------------

TINY = "worlds:warehouse?size=32x48&train=8&val=2&test=2"


@pytest.fixture(scope="module")
def start() -> ProtoDepth:
    torch.manual_seed(0)
    return ProtoDepth(backbones.get("lite").from_preset("indoor"))


def first_prototypes(start: ProtoDepth, seed: int) -> torch.Tensor:
    method = build_method("protodepth", start, replace(recipes.indoor(), seed=seed))
    domain = open_domain(TINY)
    method.begin_domain(domain, lambda m, d: None)
    return dict(method.model.domain(domain.name).named_parameters())["sets.latent.P"].detach()


def test_prototypes_start_from_the_seed_of_the_run(start: ProtoDepth) -> None:
    assert torch.equal(first_prototypes(start, 1), first_prototypes(start, 1))
    assert not torch.equal(first_prototypes(start, 1), first_prototypes(start, 2))


@pytest.mark.parametrize("name", ["replay", "cmp", "ewc"])
def test_settings_take_the_seed_of_the_run_unless_one_is_given(start: ProtoDepth, name: str) -> None:
    recipe = replace(recipes.indoor(), seed=3, settings={})
    assert build_method(name, start, recipe).config.seed == 3
    assert build_method(name, start, replace(recipe, settings={name: {"seed": 7}})).config.seed == 7
