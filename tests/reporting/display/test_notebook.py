"""The display below the cell of a notebook, in a real kernel."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CELL = """
import jaxrl.reporting.writers
from jaxrl.reporting.display.console import Console
console = Console("CartPole", "lstm 64", 4096, highlights=(("loss/policy", "policy loss"),))
console.status("compiling the training program")
console.message("run folder: runs/x")
console.write(4096, {"episode/return": 20.0, "time/steps_per_second": 1000.0, "loss/policy": 0.1})
console.finish({"stop_reason": "steps", "eval_return": 21.0, "eval_mode": "greedy"})
console.close()
"""


# Notebooks run in tests/e2e/test_notebooks.py.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning:(jupyter_client|zmq|tornado|nbclient).*")
def test_one_panel_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    panel, stream = notebook.cells[0].outputs
    assert panel["output_type"] == "display_data"
    picture = panel["data"]["text/html"]
    assert "4,096 of 4,096 steps" in picture
    assert "done: all steps made, greedy return 21.00" in picture
    assert stream["text"] == "run folder: runs/x\n"
