"""The example notebook runs from its first cell to its last, and shows what it promises."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "first_model.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> nbformat.NotebookNode:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = str(tmp_path_factory.mktemp("notebook"))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
    return notebook


def shown(notebook: nbformat.NotebookNode) -> str:
    texts = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            texts.append(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
    return "\n".join(texts)


def test_it_is_kept_without_outputs() -> None:
    """Outputs in the repository would go stale, and their noise would change with every run."""
    kept = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in kept.cells)


def test_it_runs_and_shows_a_guarantee_a_refusal_and_a_saved_model(executed: nbformat.NotebookNode) -> None:
    text = shown(executed)
    assert "epsilon" in text
    assert "spent so far: epsilon" in text
    assert "cap" in text
    assert text.strip().endswith("True")


def test_no_cell_warns(executed: nbformat.NotebookNode) -> None:
    streams = [
        output for cell in executed.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"
    ]
    assert streams == []
