"""docs/add_a_method.md: its file is a method, its example runs."""

import re
from typing import Any

import pytest
import torch

from helpers.documents import ROOT
from helpers.methods_toy import SquaredError, grey_frame, toy_domain, toy_model
from protodepth.data.batches import collate
from protodepth.methods.base import Method, build, methods
from protodepth.types import View

PAGE = ROOT / "docs" / "add_a_method.md"


@pytest.fixture
def page(monkeypatch):
    """The page's code blocks run one after the other in one namespace; the registry forgets the method afterwards."""
    monkeypatch.setattr(methods, "_items", dict(methods._items))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    namespace: dict[str, Any] = {"__name__": "page"}

    def run(count: int) -> dict[str, Any]:
        for n, block in enumerate(blocks[:count]):
            exec(compile(block, f"add_a_method.md, block {n}", "exec"), namespace)
        return namespace

    assert len(blocks) == 2
    return run


def test_the_file_is_a_method_that_can_be_built_by_name(page):
    names = page(1)
    method = build("l2sp", toy_model(2.0, 1.0), SquaredError(), names["L2SPConfig"](strength=4.0))
    method.end_domain(toy_domain("a", [(0.5, 1.0)]))
    with torch.no_grad():
        method.backbone.slope.fill_(5.0)
    batch = collate([grey_frame(0.5, 1.0)])
    assert float(method.loss(batch, View.identity(batch))["l2sp"].detach()) == pytest.approx(4.0 / 2 * 3.0**2)
    again = build("l2sp", toy_model(), SquaredError())
    again.load_state(method.state())
    assert again.state().keys() == method.state().keys()
    assert float(again.start["slope"]) == 2.0
    assert method.extra_bytes() == 2 * 4


def test_the_example_runs_and_prints_a_matrix(page, capsys):
    names = page(2)
    assert names["result"].incremental.matrices["mae"].values.shape == (2, 2)
    network = sum(p.numel() for p in names["method"].backbone.parameters())
    assert f"{4 * network} bytes kept, 0 parameters added" in capsys.readouterr().out


def test_every_hook_is_in_the_table():
    table = PAGE.read_text().split("## One file")[0]
    hooks = [name for name in vars(Method) if not name.startswith("_") and callable(getattr(Method, name))]
    assert "begin_domain" in hooks
    assert [name for name in hooks if f"`{name}(" not in table] == []
