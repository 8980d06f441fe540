"""The notebooks: text and ipynb agree, no outputs are stored, and every cell after the installation runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.py"))


def cells(name: str) -> list[dict[str, Any]]:
    return json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text())["cells"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_outputs_are_stored(name: str) -> None:
    code = [cell for cell in cells(name) if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_text_and_notebook_agree(name: str) -> None:
    """If not: `jupytext --sync notebooks/*.ipynb`, which takes the newer of each pair."""
    jupytext = pytest.importorskip("jupytext", reason="jupytext is not installed")
    text = jupytext.read(ROOT / "notebooks" / f"{name}.py")
    stored = [(cell["cell_type"], "".join(cell["source"])) for cell in cells(name)]
    assert [(cell.cell_type, cell.source) for cell in text.cells] == stored


@pytest.mark.parametrize("name", ["colab_training", "kaggle_training"])
def test_notebooks_for_accelerators_use_them(name: str) -> None:
    text = (ROOT / "notebooks" / f"{name}.py").read_text()
    assert "--config.hardware_profile=auto --config.network.compute_dtype=bfloat16" in text
    assert "# !jaxrl train $CONFIG $FAST --workdir" in text


# Kaggle's cells are Colab's, but for names of folders and hours.
RUN = [
    pytest.param(name, marks=pytest.mark.long if name == "kaggle_training" else pytest.mark.slow)
    for name in NOTEBOOKS
]


@pytest.mark.long
@pytest.mark.parametrize("name", RUN)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:(jupyter_client|zmq|tornado|nbclient).*")
def test_every_cell_after_installing_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    jupytext = pytest.importorskip("jupytext", reason="jupytext is not installed")
    for package in ("matplotlib", "PIL", "pygame", "scipy"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    notebook = jupytext.read(ROOT / "notebooks" / f"{name}.py")
    notebook.cells = [cell for cell in notebook.cells if "install" not in cell.metadata.get("tags", ())]
    for cell in notebook.cells:
        cell.source = cell.source.replace("STEPS = 2_000_000", "STEPS = 4_096")
    # `jaxrl` as it is installed beside this Python, with the sources of this checkout.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    printed = "".join(
        output.get("text", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    assert "done: all steps made" in printed
    assert "Traceback" not in printed
    assert "RuntimeWarning" not in printed  # Python warns where a command is started after jax was.
    panels = [
        output["data"].get("text/html", "")
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "data" in output
    ]
    assert all("done: all steps made" in panel for panel in panels if "steps per second" in panel)
    assert "\x1b[?25l" not in printed  # Lines, not a panel that hides the cursor and draws over itself.
    assert next(tmp_path.glob("**/episode.gif")).stat().st_size
