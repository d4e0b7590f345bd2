"""Exported graphs: they compute what PyTorch computes, at other sizes and in mixed batches, or nothing is written."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch

from helpers.documents import blocks, commands
from protodepth.backbones.base import Backbone, backbones
from protodepth.backbones.lite import Lite
from protodepth.backbones.scalefree import ScaleFree
from protodepth.cli import main
from protodepth.descriptors import sample_descriptor
from protodepth.errors import CheckpointError, ConfigError, DataError, DomainError, UnknownNameError
from protodepth.inference.engines import cache, runtimes
from protodepth.inference.engines import export as module
from protodepth.inference.engines import graph as graphs
from protodepth.inference.engines.cache import engine_for
from protodepth.inference.engines.export import ExportError, export
from protodepth.inference.engines.graph import random_batch
from protodepth.inference.engines.runtimes import Engine, GraphError, GraphInfo, feed
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.types import Batch

REASON = "the extra is missing: pip install 'protodepth[export]'"
pytest.importorskip("onnxscript", reason=REASON)
pytest.importorskip("onnxruntime", reason=REASON)
SIZE = (48, 64)
FRAMES = random_batch((37, 53), 4, (0.1, 8.0), seed=7)  # not the size of the export, and odd


@pytest.fixture(scope="module", autouse=True)
def without_shape_checks() -> Iterator[None]:
    """While the exporter traces, sizes are symbols and not the ints that the annotations promise."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def scrambled(model: ProtoDepth, seed: int) -> ProtoDepth:
    """Domains far from the identity: a graph that forgot them would show it."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name in model.domains:
            for prototypes in model.domain(name).sets.values():
                for tensor in prototypes.parameters():
                    tensor += 0.3 * torch.randn(tensor.shape, generator=random)
    return model


def with_domains(backbone: Backbone) -> ProtoDepth:
    """A base domain, one with default sets, one with more prototypes on two layers only: tables that need padding."""
    model = ProtoDepth(backbone, PrototypeConfig(image_size=3, depth_size=2))
    model.add_domain("room", base=True)
    model.add_domain("hall", seed=1)
    layers = tuple(s.name for s in backbone.latent_specs[-3:-1])
    model.add_domain("yard", seed=2, config=PrototypeConfig(image_size=5, depth_size=4, layers=layers))
    return scrambled(model, 3)


def describe_by(model: ProtoDepth, frames: Batch) -> None:
    """Each domain's descriptor becomes the sample descriptor of one frame, so that frame i chooses domain i."""
    latents = model.backbone.encode(frames).layers[model.backbone.bottleneck.name]
    s = sample_descriptor(latents, model.backbone.bottleneck.layout)
    with torch.no_grad():
        for name, row in zip(model.domains, s, strict=False):
            model.domain(name).descriptor.copy_(row)


@dataclass
class Made:
    model: ProtoDepth
    file: Path
    bytes_and_info: tuple[bytes, GraphInfo]
    engine: Engine


@pytest.fixture(scope="module")
def made(without_shape_checks: None, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """One export for all tests: the exporter needs many seconds."""
    torch.manual_seed(0)
    backbone = Lite((0.1, 8.0), (4, 6, 8, 10, 12), (4, 4, 6, 6, 8))
    backbone.head.weight.data *= 10  # untrained it hardly moves the depth, whatever the prototypes do
    model = with_domains(backbone)
    describe_by(model, FRAMES)
    file = tmp_path_factory.mktemp("export") / "lite.onnx"
    kept: list[tuple[bytes, GraphInfo]] = []
    original = module.convert
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "convert", lambda *a, **k: kept.append(original(*a, **k)) or kept[-1])
        done = export(model, file, size=SIZE)
    assert done.files == (file,)
    assert done.difference <= 1e-3
    assert (done.info.smallest, done.info.largest) == ((8, 8), (65536, 65536))
    assert done.note == ""
    return Made(model, file, kept[0], Engine.open(file, threads=1))


@pytest.fixture
def quick(made: Made, monkeypatch: pytest.MonkeyPatch) -> Made:
    """``export`` without the exporter: it gets the bytes that were made before."""
    monkeypatch.setattr(module, "convert", lambda *a, **k: made.bytes_and_info)
    return made


def assert_same(engine: Engine, model: ProtoDepth, frames: Batch) -> None:
    ours, theirs = engine.predict_batch(frames), model.predict_batch(frames)
    assert ours.domains == theirs.domains
    torch.testing.assert_close(ours.depth, theirs.depth, rtol=1e-3, atol=0)
    torch.testing.assert_close(ours.similarity, theirs.similarity, rtol=0, atol=1e-4)


def test_the_graph_chooses_for_each_image_and_gives_the_depth_of_pytorch_at_another_size(made: Made):
    assert_same(made.engine, made.model, FRAMES)
    assert set(made.engine.predict_batch(FRAMES).domains) == {"room", "hall", "yard"}


def test_a_mixed_batch_gives_what_the_single_images_give(made: Made):
    together = made.engine.predict_batch(FRAMES)
    for index, one in enumerate(FRAMES.singles()):
        alone = made.engine.predict_batch(one)
        assert alone.domains[0] == together.domains[index]
        torch.testing.assert_close(alone.depth[0], together.depth[index], rtol=1e-5, atol=0)


def test_the_domains_in_these_tests_differ_so_that_a_wrong_choice_would_show(made: Made):
    maps = [made.model.predict_batch(FRAMES, name).depth for name in made.model.domains]
    for i in range(3):
        assert float(((maps[i] - maps[i - 1]) / maps[i]).abs().max()) > 0.05


def test_predict_takes_arrays_and_answers_like_the_model(made: Made):
    image = (FRAMES.image[1].permute(1, 2, 0).numpy() * 255).astype(np.uint8)
    arrays = (image, FRAMES.sparse_depth[1, 0].numpy(), FRAMES.intrinsics[1].numpy())
    ours, theirs = made.engine.predict(*arrays), made.model.predict(*arrays)
    np.testing.assert_allclose(ours.depth, theirs.depth, rtol=1e-3)
    assert ours.domain == theirs.domain
    assert ours.similarity == pytest.approx(theirs.similarity, abs=1e-4)


def test_openvino_computes_the_same_from_its_two_files(quick: Made, tmp_path: Path):
    pytest.importorskip("openvino", reason=REASON)
    done = export(quick.model, tmp_path / "lite.xml", format="openvino", size=SIZE)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lite.bin", "lite.xml"]
    engine = Engine.open(tmp_path / "lite.xml", threads=1)
    assert engine.info == done.info == quick.engine.info
    assert_same(engine, quick.model, FRAMES)
    (tmp_path / "lite.bin").unlink()
    with pytest.raises(CheckpointError, match="two files, copy both"):
        Engine.open(tmp_path / "lite.xml")


def test_the_file_describes_itself(made: Made):
    info = made.engine.info
    assert (info.backbone, info.depth_range, info.size) == ("lite", (0.1, 8.0), SIZE)
    assert info.domains == ("room", "hall", "yard")
    assert info.domain is None
    assert info.backbone_sha256 == made.model.fingerprint()
    assert GraphInfo.loads(info.dumps(), made.file) == info
    with pytest.raises(CheckpointError, match="update protodepth"):
        GraphInfo.loads(json.dumps({**json.loads(info.dumps()), "version": 99}), made.file)
    wrong = ({"smallest": 5}, {"depth_range": ["a", 8]}, {"domains": None}, {"scaffold": []}, {"size": [1, 2, 3]})
    for text in ("[]", "5", "[" * 100_000, *(json.dumps({**json.loads(info.dumps()), **entry}) for entry in wrong)):
        with pytest.raises(CheckpointError, match="export it again"):
            GraphInfo.loads(text, made.file)


def test_a_graph_that_computes_something_else_is_refused_and_leaves_no_file(quick: Made, tmp_path: Path):
    other = scrambled(with_domains(quick.model.backbone), 9)  # PyTorch now differs from the bytes
    with pytest.raises(ExportError, match="nothing was written"):
        export(other, tmp_path / "other.onnx", size=SIZE)
    assert list(tmp_path.iterdir()) == []


def test_an_older_file_survives_a_refused_export(quick: Made, tmp_path: Path):
    (tmp_path / "other.onnx").write_bytes(b"older")
    with pytest.raises(ExportError):
        export(scrambled(with_domains(quick.model.backbone), 9), tmp_path / "other.onnx", size=SIZE)
    assert (tmp_path / "other.onnx").read_bytes() == b"older"


def test_the_check_finds_an_error_of_a_few_thousandths_and_nan(made: Made):
    class Wrong(Engine):
        factor = 1.0

        def predict_batch(self, batch: Batch, domain: str | None = None):
            out = super().predict_batch(batch, domain)
            return replace(out, depth=out.depth * self.factor)

    wrong = Wrong(made.engine.info, made.engine._run, "onnx")
    module.compare_with_torch(wrong, made.model)
    for wrong.factor in (1.002, float("nan")):
        with pytest.raises(ExportError, match="differs from PyTorch"):
            module.compare_with_torch(wrong, made.model)


def test_graphs_are_made_once_and_again_when_damaged(quick: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PROTODEPTH_CACHE", str(tmp_path))
    calls: list[int] = []
    monkeypatch.setattr(module, "convert", lambda *a, **k: calls.append(1) or quick.bytes_and_info)
    assert_same(engine_for(quick.model, "onnx", FRAMES.size), quick.model, FRAMES)
    engine_for(quick.model, "onnx", (64, 80))
    assert calls == [1]
    (file,) = (tmp_path / "graphs").iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    engine_for(quick.model, "onnx", (64, 80))
    assert calls == [1, 1]


def test_a_predictor_opens_each_size_once_and_answers_like_the_model(quick: Made, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PROTODEPTH_CACHE", str(tmp_path))
    predictor = cache.GraphPredictor(quick.model, "onnx", None)
    engine = predictor.prepare(FRAMES.size)
    assert predictor.prepare(FRAMES.size) is engine
    torch.testing.assert_close(predictor(FRAMES).depth, quick.model.predict_batch(FRAMES).depth, rtol=1e-3, atol=0)


def test_another_domain_or_another_weight_is_another_graph(made: Made):
    keys = {cache._key(made.model, name) for name in (None, "base", "hall", "yard")}
    changed = scrambled(with_domains(made.model.backbone), 9)
    assert len(keys | {cache._key(changed, "hall"), cache._key(changed, None)}) == 6


def test_a_graph_cannot_be_told_another_domain_than_it_has(made: Made):
    with pytest.raises(DomainError, match="chooses among room, hall, yard; export one with --domain hall"):
        made.engine.predict_batch(FRAMES, "hall")
    folded = Engine(
        replace(made.engine.info, domain="hall", domains=()), lambda inputs: [inputs["image"][:, :1]], "onnx"
    )
    assert folded.predict_batch(FRAMES, "hall").domains == ("hall",) * 4
    assert folded.predict_batch(FRAMES).similarity is None
    with pytest.raises(DomainError, match="has domain 'hall' inside"):
        folded.predict_batch(FRAMES, "base")


def test_sizes_that_a_graph_does_not_hold_for_are_refused(made: Made):
    fixed = replace(made.engine.info, smallest=SIZE, largest=SIZE)
    with pytest.raises(DataError, match=r"exported for 48x64, the frame is 37x53.*--size 37x53"):
        fixed.check_size((37, 53))
    with pytest.raises(DataError, match="sizes from 40x40 to 65536x65536"):
        replace(made.engine.info, smallest=(40, 40)).check_size((37, 53))


@pytest.mark.parametrize("content", [b"", b"no graph at all", None])
def test_a_file_that_is_no_graph_is_one_clear_error(made: Made, tmp_path: Path, content: bytes | None):
    file = tmp_path / "bad.onnx"
    file.write_bytes(made.file.read_bytes()[:5000] if content is None else content)
    with pytest.raises(CheckpointError, match=r"bad\.onnx"):
        Engine.open(file)


def test_a_graph_of_another_program_is_refused(tmp_path: Path):
    onnx = pytest.importorskip("onnx", reason=REASON)
    shape = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [shape], [out])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    (tmp_path / "relu.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(CheckpointError, match="not written by protodepth export"):
        Engine.open(tmp_path / "relu.onnx")
    with pytest.raises(CheckpointError, match=r"ends in \.onnx or \.xml"):
        Engine.open(__file__)


def test_bad_targets_and_names_are_refused_before_anything_runs(made: Made, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"ends in \.onnx or \.xml"):
        export(made.model, tmp_path / "model.pt")
    with pytest.raises(ConfigError, match=r"ends in \.xml"):
        export(made.model, tmp_path / "model.onnx", format="openvino")
    with pytest.raises(ConfigError, match="too small"):
        export(made.model, tmp_path / "model.onnx", size=(8, 8))
    with pytest.raises(UnknownNameError, match="room, hall, yard"):
        export(made.model, tmp_path / "model.onnx", domain="cellar")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(ConfigError, match="it is a folder"):
        export(made.model, tmp_path / "folder.onnx")


def test_a_folded_domain_is_three_constants_a_layer_and_no_projection(made: Made):
    graph = graphs.Graph(made.model, "hall")
    held = {name for name, _ in graph.named_buffers() if name.startswith("latent__")}
    assert held == {"latent__A", "latent__K", "latent__P"}
    values = made.model.domain("hall").sets["latent"]
    torch.testing.assert_close(graph.get_buffer("latent__K"), values.P @ values.W)
    torch.testing.assert_close(graph(*feed_tensors(graph)), made.model.predict_batch(FRAMES, "hall").depth)


def test_base_folds_nothing_in_and_a_model_without_domains_is_exported_as_base(made: Made):
    graph = graphs.Graph(ProtoDepth(made.model.backbone), None)
    assert graph.domain == "base"
    assert graph.layers == ()
    torch.testing.assert_close(graph(*feed_tensors(graph)), made.model.predict_batch(FRAMES, "base").depth)


def feed_tensors(graph: graphs.Graph) -> list[torch.Tensor]:
    return [torch.from_numpy(a) for a in feed(FRAMES, scaffolded=graph.scaffolded).values()]


def test_the_command_writes_a_graph_and_says_how_far_it_is_from_pytorch(quick: Made, tmp_path: Path, capsys):
    quick.model.save_pretrained(tmp_path / "model")
    arguments = ["export", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "m.onnx")]
    assert main.run([*arguments, "--size", "48x64"]) == 0
    assert (
        "choosing among room, hall, yard, any batch, any size; largest relative difference" in capsys.readouterr().out
    )
    assert main.run([*arguments, "--size", "48"]) == 2
    assert main.run([*arguments, "--format", "openvino"]) == 2


@pytest.mark.parametrize("runtime", ["onnx", "openvino"])
def test_predict_with_an_engine_writes_the_files_that_pytorch_writes(
    quick: Made, runtime: str, tmp_path, monkeypatch, capsys
):
    pytest.importorskip(runtime, reason=REASON)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROTODEPTH_CACHE", str(tmp_path / "cache"))
    quick.model.save_pretrained("m")
    data = "worlds:room?size=37x53&train=1&val=1&test=3"
    command = ["predict", "--model", "m", "--data", data, "--format", "npy", "--write", "depth"]
    assert main.run([*command, "--out", "torch"]) == 0
    assert main.run([*command, "--out", "graph", "--engine", runtime]) == 0
    assert f"making a graph for {runtime}" in capsys.readouterr().err
    lines = [
        [json.loads(line) for line in Path(o, "predictions.jsonl").read_text().splitlines()] for o in ("torch", "graph")
    ]
    for ours, theirs in zip(*lines, strict=True):
        np.testing.assert_allclose(
            np.load(f"graph/{ours['files'][0]}"), np.load(f"torch/{theirs['files'][0]}"), rtol=1e-3
        )
        assert ours["domain"] == theirs["domain"]
        assert ours["similarity"] == pytest.approx(theirs["similarity"], abs=1e-4)
    assert main.run([*command, "--out", "again", "--engine", runtime]) == 0
    assert "making a graph" not in capsys.readouterr().err
    assert main.run([*command, "--out", "no", "--engine", runtime, "--unknown", "base"]) == 2
    assert "need --engine torch" in capsys.readouterr().err


def test_the_commands_and_the_python_of_export_md_run(quick: Made, tmp_path: Path, monkeypatch, capsys):
    pytest.importorskip("openvino", reason=REASON)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROTODEPTH_CACHE", str(tmp_path / "cache"))
    quick.model.save_pretrained("worlds-tiny")  # a folder of this name comes before the bundled model
    for words in commands("docs/export.md"):
        small = {"speed": ["--size", "48x64", "--runs", "2"], "export": ["--size", "48x64"]}.get(words[0], [])
        words = [w.replace("worlds:room", "worlds:room?size=48x64&train=1&val=1&test=2") for w in words]
        assert main.run([*words, *small]) == 0, capsys.readouterr().err
    assert {p.name for p in tmp_path.iterdir()} >= {"model.onnx", "model.xml", "model.bin", "completed"}
    image, points, K = FRAMES.image[0].permute(1, 2, 0).numpy(), FRAMES.sparse_depth[0, 0].numpy(), FRAMES.intrinsics[0]
    space = {"image": image, "sparse_depth": points, "intrinsics": K.numpy()}
    for block in blocks("docs/export.md", "python"):
        exec(compile(block, "docs/export.md", "exec"), space)
    assert space["p"].depth.shape == FRAMES.size  # type: ignore[attr-defined]


# --- a network whose graph has one size -------------------------------------------------------------------------------


@dataclass
class Traced:
    """A graph of one size, for ONNX Runtime or for OpenVINO, and what was said when it was made."""

    model: ProtoDepth
    domain: str | None
    file: Path
    proto: Any
    info: GraphInfo
    note: str


@pytest.fixture(scope="module")
def scale_free(without_shape_checks: None) -> ProtoDepth:
    torch.manual_seed(0)
    return with_domains(ScaleFree())


@pytest.fixture(scope="module")
def traced(scale_free: ProtoDepth, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Traced]:
    """Each graph is traced once for all tests."""
    onnx, graphs_made = pytest.importorskip("onnx", reason=REASON), dict[str | None, Traced]()
    pytest.importorskip("openvino", reason=REASON)

    def get(domain: str | None, suffix: str) -> Traced:
        if domain not in graphs_made:
            file, kept = tmp_path_factory.mktemp("traced") / f"graph{suffix}", []
            original = module.convert
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(module, "_program", lambda *a, **k: pytest.fail("the slow exporter was asked"))
                patch.setattr(module, "convert", lambda *a, **k: kept.append(original(*a, **k)) or kept[-1])
                size = (64, 96) if domain == "base" else (50, 71)  # whole cells at every level, and not
                done = export(scale_free, file, size=size, domain=domain)
            file.with_name("both.onnx").write_bytes(kept[0][0])
            graphs_made[domain] = Traced(
                scale_free, domain, file, onnx.load_from_string(kept[0][0]), done.info, done.note
            )
        return graphs_made[domain]

    return get


@pytest.mark.parametrize(
    ("domain", "suffix"), [("base", ".onnx"), pytest.param("hall", ".onnx", marks=pytest.mark.slow), (None, ".xml")]
)
def test_a_graph_of_one_size_is_traced_and_both_libraries_agree_with_pytorch(
    traced: Callable[..., Traced], domain: str | None, suffix: str, tmp_path: Path
):
    done = traced(domain, suffix)
    assert done.info.smallest == done.info.largest == done.info.size
    assert "depends on it" in done.note
    frames = random_batch(done.info.size, 3, (0.1, 8.0), seed=5)
    theirs = done.model.predict_batch(frames, domain)
    both = done.file.with_name("both.onnx")
    drafts = module._draft(tmp_path, both.read_bytes(), done.info, "openvino")
    for file in (both, drafts[-1]):
        engine = Engine.open(file, threads=1)
        ours, single = engine.predict_batch(frames), engine.predict_batch(frames[:1])
        torch.testing.assert_close(ours.depth, theirs.depth, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(single.depth, theirs.depth[:1], rtol=1e-4, atol=1e-5)
        assert ours.domains == theirs.domains
    with pytest.raises(ConfigError, match="ONNX Runtime has no bfloat16"):
        Engine.open(both, precision="bfloat16")
    if domain == "base":
        said = ""
        try:
            half = Engine.open(drafts[-1], threads=1, precision="bfloat16").predict_batch(frames[:1])
        except (ConfigError, GraphError) as error:  # a processor without it, or one whose kernels are held back
            half, said = None, str(error)
        if half is None:
            assert "with precision float32" in said
        else:
            assert float((half.depth / theirs.depth[:1]).log().abs().mean()) < 0.1


def odd_inputs(proto) -> list[tuple[int, ...]]:
    """Shapes of weights whose inputs ONNX Runtime can take neither as blocks of 16 nor, being fewer, as they are."""
    shapes = {w.name: tuple(w.dims) for w in proto.graph.initializer}
    weights = [shapes[node.input[1]] for node in proto.graph.node if node.op_type == "Conv"]
    return [shape for shape in weights if shape[1] > 16 and shape[1] % 16]


def test_a_traced_graph_has_its_constants_folded_and_no_slow_operation(traced: Callable[..., Traced]):
    proto = traced("base", ".onnx").proto
    kinds = [node.op_type for node in proto.graph.node]
    assert len(kinds) < 1250  # many, each on few maps
    assert "Constant" not in kinds
    assert not {"Softmax", "ConvTranspose", "Transpose"} & set(kinds)
    assert kinds.count("Conv") <= 92
    assert not odd_inputs(proto)
    assert "ConvTranspose" in {node.op_type for node in traced(None, ".xml").proto.graph.node}  # faster in OpenVINO


@pytest.mark.slow
def test_a_graph_that_chooses_has_every_domains_own_encoder_and_decoder(tmp_path: Path) -> None:
    model, every = ProtoDepth(Lite()), (*Lite.decoder_parts, *Lite.encoder_parts)
    for seed, parts in enumerate((("scales",), every, ())):
        model.add_domain(f"d{seed}", config=PrototypeConfig(image_size=3, depth_size=2, parts=parts), seed=seed)
        with torch.no_grad():
            for parameter in model.domain(f"d{seed}").parts.parameters():
                parameter.mul_(1.1)
    done = export(model, tmp_path / "graph.onnx", size=(64, 96))
    assert done.difference < 1e-3
    assert done.info.dynamic_size, done.note


# --- every network, with the exporter ---------------------------------------------------------------------------------


def small(name: str) -> Backbone:
    kind = backbones.get(name)
    return kind.from_preset("small") if "small" in kind.presets else kind()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("kbnet", None),
        ("kbnet", "hall"),
        ("voiced", None),
        ("fusionnet", "hall"),
        ("scaffnet", None),
        ("uformer", None),
    ],
)
def test_every_network_exports_and_both_libraries_agree_with_pytorch(name: str, domain: str | None, tmp_path: Path):
    torch.manual_seed(0)
    model = with_domains(small(name))
    done = export(model, tmp_path / "graph.onnx", size=(64, 96), domain=domain)
    assert done.difference < 1e-3
    assert done.info.scaffold == (name == "voiced")
    assert done.info.dynamic_size, done.note
    frames = random_batch((61, 87), 2, model.backbone.depth_range, seed=5)
    again = module._draft(tmp_path, (tmp_path / "graph.onnx").read_bytes(), done.info, "openvino")
    for file in (tmp_path / "graph.onnx", again[-1]):
        ours, theirs = Engine.open(file).predict_batch(frames), model.predict_batch(frames, domain)
        assert ours.domains == theirs.domains
        torch.testing.assert_close(ours.depth, theirs.depth, rtol=1e-3, atol=0)


@pytest.mark.parametrize("traced", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_graph_moves_the_picture_of_a_domain_that_is_not_registered(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traced: bool
) -> None:
    """In a graph of one size; that of any size, with which the exporter takes ten times as long, among the slow."""
    model = copy.deepcopy(made.model)
    names = model.descriptors()[0]
    model.domain(names[-1]).registration = torch.tensor([1.1, 0.04, 0.0])
    graph = graphs.Graph(model, names[-1])
    right = model.predict_batch(FRAMES, names[-1]).depth
    assert not torch.allclose(right, made.model.predict_batch(FRAMES, names[-1]).depth, rtol=1e-4)
    torch.testing.assert_close(graph(*feed_tensors(graph)), right)
    graph, out = graphs.Graph(model, None), model.predict_batch(FRAMES)
    depth, index, _ = graph(*feed_tensors(graph))
    assert tuple(names[i] for i in index) == out.domains
    torch.testing.assert_close(depth, out.depth)
    monkeypatch.setattr(Lite, "sizes_in_graph", not traced)
    if traced:
        monkeypatch.setattr(module, "_program", lambda *a, **k: pytest.fail("the slow exporter was asked"))
    for domain, expected in ((names[-1], right), (None, out.depth)):
        export(model, tmp_path / "moved.onnx", domain=domain, size=FRAMES.size if traced else SIZE)
        written = Engine.open(tmp_path / "moved.onnx").predict_batch(FRAMES).depth
        torch.testing.assert_close(written, expected, rtol=1e-4, atol=1e-4)


def test_openvino_compiles_for_the_shapes_that_come_and_after_some_for_any(made: Made, tmp_path: Path, monkeypatch):
    """A graph that takes any size is up to twice as slow as one for the frame's own."""
    pytest.importorskip("openvino", reason=REASON)
    data, info = made.bytes_and_info
    engine = Engine.open(module._draft(tmp_path, data, info, "openvino")[-1], threads=1)
    compiled = []
    original = runtimes._CompiledGraphs.fitting

    def watched(self, shapes):
        graph = original(self, shapes)
        side = next(side for side in graph.inputs if "image" in side.get_names())
        compiled.append(str(side.partial_shape))
        return graph

    monkeypatch.setattr(runtimes._CompiledGraphs, "fitting", watched)
    monkeypatch.setattr(runtimes, "MOST_SHAPES", 2)
    sizes = [(40, 56), (40, 56), (48, 40), (56, 48)]
    for size in sizes:
        assert_same(engine, made.model, random_batch(size, 1, (0.1, 8.0), seed=1))
    assert compiled == ["[1,3,40,56]", "[1,3,40,56]", "[1,3,48,40]", "[?,3,?,?]"]
