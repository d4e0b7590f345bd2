"""The notebook runs from top to bottom and shows what its text says."""

from pathlib import Path

import pytest

from protodepth.storage import folders

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install 'protodepth[dev]'")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install 'protodepth[dev]'")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install 'protodepth[dev]'")
NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


def texts(cell) -> str:
    """All plain text that a cell printed or returned."""
    parts = [o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in cell.outputs]
    return "\n".join(parts)


@pytest.mark.skipif("worlds-tiny" not in folders.bundled(), reason="the bundled model worlds-tiny is not there")
def test_the_quickstart_runs_and_forgets_nothing(tmp_path: Path):
    book = nbformat.read(NOTEBOOK, as_version=4)
    learning = next(c for c in book.cells if "protodepth.adapt(" in c.source)
    for written, shorter in (("steps=30", "steps=2"), ("&test=1", "&test=1&size=32x48")):
        assert written in learning.source
        learning.source = learning.source.replace(written, shorter)  # the test is about whether it runs
    client = nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    code = [c for c in book.cells if c.cell_type == "code"]
    pictures = [o for c in code for o in c.outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 2
    shown = {i: texts(c) for i, c in enumerate(code)}
    assert "warehouse" in shown[4]
    assert shown[5] == "True"
    assert "the same prediction: True" in shown[6]
    assert int(shown[7]) == 128 * 192


def test_the_stored_notebook_has_no_outputs_and_no_paths_of_a_machine():
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(book)
    assert all(not c.get("outputs") and c.get("execution_count") is None for c in book.cells if c.cell_type == "code")
    text = NOTEBOOK.read_text()
    assert "/home/" not in text
    assert "/root" not in text
