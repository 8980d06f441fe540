"""The decision matrix as JSON, Markdown and HTML, and report.html with curves, cells and commands."""

from __future__ import annotations

import importlib.util
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from jaxrl.config import installation
from jaxrl.config.text import counted
from jaxrl.experiments import matrix as matrices
from jaxrl.experiments.cells import ExperimentCell, ExperimentFolder, ExperimentPlan
from jaxrl.experiments.matrix import COLUMNS, Matrix
from jaxrl.experiments.results import Measured, curves_by_group, read_results, results_by_group
from jaxrl.reporting.pages.figures import Curve, draw_curve, empty_figure, render
from jaxrl.reporting.pages.page import Section, Table, html_page, machine_rows, table_section
from jaxrl.runs.records import stored_object

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PICTURES = {"success_rate": "success on test levels", "return": "return of evaluations"}
_NOTES = (
    "A curve is the mean over seeds, and its band goes from the lowest to the highest of them.",
    "Success is the success rate of episodes at the end, greedy or sampled, "
    "whichever was better in training, on unseen levels (test) and on training "
    "levels (train).",
    "Each command can be run again by itself. Training and pretraining resume where they were.",
)
_PACKAGES = ("jinja2", "matplotlib")  # of pages and their pictures
TITLE = "Decision matrix"


def experiment_page(plan: ExperimentPlan, matrix: Matrix, failures: Mapping[str, str], command: str) -> str:
    """The page, from what all cells have left so far."""
    results = {cell: read_results(cell) for cell in plan.cells}
    finished = [cell for cell, found in results.items() if found is not None]
    architectures, seeds = plan.options.architectures, plan.options.seeds
    introduction = (
        f"{counted(len(architectures), 'architecture')}, {', '.join(plan.options.modes)}, "
        f"{counted(len(seeds), 'seed')}: {len(finished)} of {counted(len(results), 'cell')} finished. "
    )
    return html_page(
        title=f"Experiment {plan.folder.name}",
        introduction=introduction + " ".join(sentences(matrix)),
        problems=[f"{name}: {why}" for name, why in failures.items()],
        problems_title="failed",
        sections=list(_sections(plan, matrix, results, failures, finished)),
        notes=[weights(matrix), *_NOTES],
        command=command,
    )


def _sections(
    plan: ExperimentPlan,
    matrix: Matrix,
    results: Mapping[ExperimentCell, Measured | None],
    failures: Mapping[str, str],
    finished: Sequence[ExperimentCell],
) -> Iterator[Section]:
    yield table_section(TITLE, *table(matrix))
    for name, curves in curves_by_group(finished).items():
        if name in _PICTURES:
            svg = render(_figure(curves, _PICTURES[name]), "svg")
            yield Section(_PICTURES[name].capitalize(), None, name, svg)
    yield table_section("Cells", *_cells(results, failures), names=2)
    yield table_section("Success on test levels by category", *_categories(results))
    settings = [
        (name, ", ".join(map(str, x)) if isinstance(x, tuple) else str(x))
        for name, x in plan.options.to_json().items()
        if x not in ("", None, False)
    ]
    yield table_section("Settings", ("setting", "value"), settings, names=2)
    summary = stored_object(finished[0].folder / "summary.json") if finished else {}
    yield table_section("Machine", ("", ""), list(machine_rows(summary)), names=2)
    ran = [
        (cell.name, stage, shlex.join(["jaxrl", *words]))
        for cell in results
        for stage, words in plan.commands(cell).items()
    ]
    yield table_section("Commands", ("cell", "stage", "command"), ran, names=3)


def _cells(
    results: Mapping[ExperimentCell, Measured | None], failures: Mapping[str, str]
) -> tuple[list[str], list[list[str]]]:
    columns = list(matrices.COLUMNS)
    headings = ["cell", "state", *(matrices.COLUMNS[name][0] for name in columns), "minutes of training"]
    rows = []
    for cell, found in results.items():
        if found is None:
            why = failures.get(cell.name, "")
            rows.append([cell.name, f"failed: {why}" if why else "unfinished", *["-"] * (len(columns) + 1)])
            continue
        state = f"finished, from scratch: {found.clone}" if found.clone else "finished"
        minutes = "-" if found.seconds is None else f"{found.seconds / 60:.1f}"
        rows.append(
            [cell.name, state, *(format_value(name, found.columns[name]) for name in columns), minutes]
        )
    return headings, rows


def _categories(results: Mapping[ExperimentCell, Measured | None]) -> tuple[list[str], list[list[str]]]:
    """The mean over the seeds that have finished."""
    groups = results_by_group(results)
    names = list(next(iter(groups.values()))[0].test) if groups else ["all"]
    rows = []
    for group, seeds in groups.items():
        means = [sum(float(seed.test[name]["success_rate"]) for seed in seeds) / len(seeds) for name in names]
        rows.append([group, *(f"{100 * x:.0f}%" for x in means)])
    return ["architecture", *names], rows


def _figure(curves: Mapping[str, Curve], label: str) -> Figure:
    figure, ax = empty_figure(7.5, 3.8)
    for index, (name, curve) in enumerate(curves.items()):
        draw_curve(ax, curve, name, index)
    ax.set_xlabel("environment steps")
    ax.set_ylabel(label)
    ax.legend(fontsize=8, frameon=False)
    return figure


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
        problems=failures,
        problems_title="failed",
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
        _, _, size = next(iter(matrix.moved)).rpartition("-")
        found.append(f"No weight moved by {size} changes this.")
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
