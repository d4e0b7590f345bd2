"""docs/checkpoints.md: every command runs as written, on files of the official layout with random weights."""

from pathlib import Path

import numpy as np
import torch

from helpers.documents import commands
from protodepth.backbones.base import backbones
from protodepth.cli.main import run
from protodepth.data.files.images import write_depth, write_image


def write_checkpoint(path: Path, network: str, preset: str) -> None:
    net = backbones.get(network).from_preset(preset)
    parts = {theirs: net.get_submodule(ours) for theirs, ours in net.official_keys.items()}  # type: ignore[attr-defined]
    states = {theirs: {f"module.{n}": t for n, t in part.state_dict().items()} for theirs, part in parts.items()}
    torch.save({"train_step": 1, **states}, path)


def test_convert_and_predict_run_as_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    write_image(Path("image.png"), (random.random((40, 56, 3)) * 255).astype(np.uint8))
    write_depth(Path("sparse.png"), np.where(random.random((40, 56)) < 0.1, 3.0, 0.0).astype(np.float32), "kitti")
    Path("intrinsics.txt").write_text("50 0 28\n0 50 20\n0 0 1\n")
    for words in commands("docs/checkpoints.md"):
        if words[0] == "convert":
            write_checkpoint(Path(words[2]), words[1], words[words.index("--preset") + 1])
        assert run(words) == 0, capsys.readouterr().err
        if words[0] == "convert":
            assert "loaded" in capsys.readouterr().out
    for name in ("kbnet", "voiced", "fusionnet"):
        assert (tmp_path / f"{name}-result" / "depth.png").exists()
