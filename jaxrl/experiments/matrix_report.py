"""The decision matrix as JSON, Markdown and HTML."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence

from jaxrl.config import installation
from jaxrl.experiments.folder import ExperimentFolder
from jaxrl.experiments.matrix import COLUMNS, Matrix
from jaxrl.reporting.pages.page import Section, Table, html_page

_PACKAGES = ("jinja2", "matplotlib")  # of pages and their pictures
TITLE = "Decision matrix"


def write_matrix(folder: ExperimentFolder, matrix: Matrix, failures: Sequence[str], command: str) -> None:
    """Writes decision_matrix.json, .md and, if the package for it is installed, .html."""
    folder.write("decision_matrix.json", matrix.to_json())
    headings, rows = table(matrix)
    lines = [f"# {TITLE}", "", *_markdown(headings, rows), "", *sentences(matrix)]
    lines += ["", *(f"- failed: {failure}" for failure in failures)] if failures else []
    folder.write("decision_matrix.md", "\n".join(lines) + "\n")
    if missing_page():
        return
    page = html_page(
        title=f"{TITLE}: {folder.path.name}",
        introduction=" ".join(sentences(matrix)),
        problems=[f"failed: {failure}" for failure in failures],
        sections=[Section(TITLE, Table(TITLE, headings, rows))],
        notes=[weights(matrix)],
        command=command,
    )
    folder.write("decision_matrix.html", page)


def missing_page() -> str:
    """The reason why there are no HTML pages; "" if there are."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    left_out = "decision_matrix.html and report.html are left out, since they need"
    return f"{left_out} {missing[0]}: {installation.command('compare')}"


def table(matrix: Matrix) -> tuple[list[str], list[list[str]]]:
    """(headings, rows of text)."""
    headings = ["architecture", "score", *(heading for heading, _ in COLUMNS.values())]
    rows = []
    for row in matrix.rows:
        cells = [format_value(column, row.values[column]) for column in COLUMNS]
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


def format_value(column: str, value: float) -> str:
    """A value of a column as text."""
    if not math.isfinite(value):
        return "never"
    if column in ("success", "gap"):
        return f"{100 * value:.0f}%"
    return f"{value:.3f}" if column == "latency" else f"{value:,.0f}"


def weights(matrix: Matrix) -> str:
    """The weights of all columns, in words."""
    shares = ", ".join(f"{COLUMNS[name][0]} {x:.2f}" for name, x in matrix.weights.items())
    return (
        f"Weights: {shares}. Each column is scaled from 0 (the worst) to 1: the best, and what differs from "
        "it by no more than the standard error of the difference."
    )


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    line = lambda cells: "| " + " | ".join(cells) + " |"  # noqa: E731
    return [line(headings), "|" + "---|" * len(headings), *map(line, rows)]
