"""The notebook: it runs from its first cell to its last, and what is stored in it is of this kind."""

from __future__ import annotations

from typing import Any

import matplotlib
import nbformat
import pytest
from nbclient import NotebookClient

from tests.pages import DOCS

TOUR = DOCS / "tour.ipynb"
LARGEST = 150_000  # bytes of the file, pictures included


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(notebook: Any) -> list[set[str]]:
    """The kinds of output of each cell of code; warnings are none."""
    cells = code_cells(notebook)
    return [{output.output_type for output in cell.outputs if output.get("name") != "stderr"} for cell in cells]


@pytest.mark.slow
def test_its_code_runs(capsys):
    matplotlib.use("Agg", force=True)
    printed, names = [], {}
    for cell in code_cells(nbformat.read(TOUR, as_version=4)):
        exec(compile(cell.source, TOUR.name, "exec"), names)
        printed.append(bool(capsys.readouterr().out))
    assert printed == ["stream" in kinds for kinds in shown(nbformat.read(TOUR, as_version=4))]


@pytest.mark.slow
def test_it_runs_as_a_notebook(tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(TOUR, as_version=4)
    before = shown(notebook)
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert shown(notebook) == before


def test_it_is_small_and_has_its_outputs():
    notebook = nbformat.read(TOUR, as_version=4)
    nbformat.validate(notebook)
    assert TOUR.stat().st_size < LARGEST
    kinds = [kind for kinds in shown(notebook) for kind in kinds]
    assert len(kinds) > 5
    assert set(kinds) == {"stream", "display_data"}
