"""The decision matrix as JSON, Markdown and HTML, and the curves of all cells for TensorBoard."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence

from jaxrl.config import installation
from jaxrl.experiments.cells import ExperimentCell
from jaxrl.experiments.folder import ExperimentFolder
from jaxrl.experiments.matrix import COLUMNS, Matrix
from jaxrl.experiments.results import SUCCESS
from jaxrl.reporting.pages.page import Section, Table, html_page
from jaxrl.reporting.writers import TensorBoardWriter
from jaxrl.runs import records

_CURVES = {SUCCESS: "success_rate", "eval/return": "return", "eval/all/efficiency": "efficiency"}
_TITLE = "Decision matrix"


def write_matrix(folder: ExperimentFolder, matrix: Matrix, failures: Sequence[str], command: str) -> None:
    """Writes decision_matrix.json, .md and, if the package for it is installed, .html."""
    folder.write("decision_matrix.json", matrix.to_json())
    headings, rows = table(matrix)
    lines = [f"# {_TITLE}", "", *_markdown(headings, rows), "", *sentences(matrix)]
    lines += ["", *(f"- failed: {failure}" for failure in failures)] if failures else []
    folder.write("decision_matrix.md", "\n".join(lines) + "\n")
    if missing_page():
        return
    page = html_page(
        title=f"{_TITLE}: {folder.path.name}",
        introduction=" ".join(sentences(matrix)),
        problems=[f"failed: {failure}" for failure in failures],
        sections=[Section(_TITLE, Table(_TITLE, headings, rows))],
        notes=[_weights(matrix)],
        command=command,
    )
    folder.write("decision_matrix.html", page)


def missing_page() -> str:
    """Why there is no decision_matrix.html; "" if there is one."""
    if importlib.util.find_spec("jinja2") is not None:
        return ""
    return f"decision_matrix.html is left out, since it needs jinja2: {installation.command('compare')}"


def table(matrix: Matrix) -> tuple[list[str], list[list[str]]]:
    """(headings, rows of text)."""
    headings = ["architecture", "score", *(heading for heading, _ in COLUMNS.values())]
    rows = []
    for row in matrix.rows:
        cells = [_shown(column, row.values[column]) for column in COLUMNS]
        rows.append([row.name, f"{row.score:.3f}", *cells])
    if matrix.bootstrap:
        headings.append("first in resamples")
        for line, row in zip(rows, matrix.rows, strict=True):
            line.append(f"{100 * matrix.bootstrap[row.name]:.0f}%")
    return headings, rows


def sentences(matrix: Matrix) -> list[str]:
    """The certainty of the winner, in words."""
    if not matrix.rows:
        return ["No cell has finished."]
    if not matrix.winner:
        return ["Several have the best score: none is the winner."]
    found = [f"{matrix.winner} has the best score."]
    others = {change: name or "a tie" for change, name in matrix.moved.items() if name != matrix.winner}
    if others:
        changes = ", ".join(f"{name} ({change})" for change, name in others.items())
        found.append(f"It depends on the weights: one moved makes the winner {changes}.")
    else:
        found.append("No weight moved by that much changes this.")
    if not matrix.bootstrap:
        found.append("With one seed nothing is known of chance.")
    return found


def write_curves(folder: ExperimentFolder, cells: Sequence[ExperimentCell]) -> None:
    """Writes comparison/METRIC against steps for TensorBoard, a line for each cell that has rows."""
    for cell in cells:
        place = folder.path / "comparison" / cell.name.replace("/", "-").replace(":", "_")
        if place.exists() or not (cell.folder / "metrics.jsonl").exists():
            continue
        run = records.read(str(cell.folder))
        writer = TensorBoardWriter(place)
        for row in run.rows:
            found = {
                f"comparison/{name}": row[key] for key, name in _CURVES.items() if row.get(key) is not None
            }
            if found:
                writer.write(int(row["step"]), found)
        writer.close()


def _shown(column: str, value: float) -> str:
    if not math.isfinite(value):
        return "never"
    if column in ("success", "gap"):
        return f"{100 * value:.0f}%"
    return f"{value:.3f}" if column == "latency" else f"{value:,.0f}"


def _weights(matrix: Matrix) -> str:
    shares = ", ".join(f"{COLUMNS[name][0]} {x:.2f}" for name, x in matrix.weights.items())
    return f"Weights: {shares}. Each column is scaled from 0 (the worst) to 1 (the best)."


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    line = lambda cells: "| " + " | ".join(cells) + " |"  # noqa: E731
    return [line(headings), "|" + "---|" * len(headings), *map(line, rows)]
