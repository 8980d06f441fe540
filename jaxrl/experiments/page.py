"""report.html of an experiment: decision matrix, curves, every cell, its commands, and the machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from jaxrl.experiments import matrix as matrices
from jaxrl.experiments.cells import ExperimentCell, ExperimentPlan
from jaxrl.experiments.curves import curves_by_group
from jaxrl.experiments.matrix import Matrix
from jaxrl.experiments.matrix_report import TITLE, format_value, sentences, table, weights
from jaxrl.experiments.results import Measured, read_results, results_by_group
from jaxrl.reporting.pages.figures import Curve, draw_curve, empty_figure, render
from jaxrl.reporting.pages.page import Section, html_page, machine_rows, table_section
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


def experiment_page(plan: ExperimentPlan, matrix: Matrix, failures: Mapping[str, str], command: str) -> str:
    """The page, from what all cells have left so far.

    Args:
      plan: of the experiment.
      matrix: of what has finished.
      failures: the reason of each, by cell.
      command: with which the experiment was started, after `jaxrl`.
    """
    results = {cell: read_results(cell) for cell in plan.cells}
    finished = [cell for cell, found in results.items() if found is not None]
    seeds = len(plan.options.seeds)
    introduction = (
        f"{len(plan.options.architectures)} architectures, {', '.join(plan.options.modes)}, {seeds} "
        f"seed{'s' * (seeds > 1)}: {len(finished)} of {len(results)} cells have finished. "
    )
    return html_page(
        title=f"Experiment {plan.folder.name}",
        introduction=introduction + " ".join(sentences(matrix)),
        problems=[f"failed: {name}: {why}" for name, why in failures.items()],
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
    settings = [(name, str(x)) for name, x in plan.options.to_json().items() if x not in ("", None, False)]
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
