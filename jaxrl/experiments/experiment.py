"""An experiment from its options to its decision matrix."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from jaxrl.config import ConfigError, installation, versions
from jaxrl.config.errors import RunError
from jaxrl.config.text import one_line
from jaxrl.experiments.cells import ExperimentCell, ExperimentFolder, ExperimentPlan, copy_files
from jaxrl.experiments.experiment_options import ExperimentOptions
from jaxrl.experiments.matrix import Matrix, decide
from jaxrl.experiments.page import experiment_page, missing_page, write_matrix
from jaxrl.experiments.ray_cells import run_on_ray
from jaxrl.experiments.results import Measured, read_results, results_by_group, write_tensorboard
from jaxrl.experiments.runner import run_cells
from jaxrl.reporting.logs import log_level, log_to
from jaxrl.runs.commits import commits
from jaxrl.runs.signals import Interruption

_log = logging.getLogger(__name__)
_line_lock = threading.Lock()  # cells run side by side, each with lines of its own


def run(
    options: ExperimentOptions,
    folder: ExperimentFolder,
    interruption: Interruption,
    say: Callable[[str], object],
    command: str,
) -> tuple[Matrix, dict[str, str]]:
    """Runs all cells that have not finished.

    Args:
      folder: new, or of an experiment with the same options that ended early.
      interruption: a signal, after which the cell that runs saves and nothing more is started.
      command: as it was given, for the report.

    Returns:
      (decision matrix of what has finished, the reason of each failure by cell).

    Raises:
      ConfigError: a dataset or an architecture is wrong, or another process has the folder.
    """
    plan = ExperimentPlan.of(options, folder.path)
    if options.ray_address:
        installation.require("`--ray-address`", "ray", "ray")
    plan.require_networks()
    if options.num_devices == 0:
        os.environ["JAX_PLATFORMS"] = "cpu"  # of the processes of cells
    token = log_level.set(options.trace_level)
    try:
        with folder.claim(), log_to(folder.path / f"{options.experiment_name}.log"):

            def tell(line: str) -> None:
                with _line_lock:
                    say(line)
                    _log.info("%s", line)

            return _run(plan, folder, interruption, tell, command)
    finally:
        log_level.reset(token)


def _run(
    plan: ExperimentPlan,
    folder: ExperimentFolder,
    interruption: Interruption,
    say: Callable[[str], object],
    command: str,
) -> tuple[Matrix, dict[str, str]]:
    folder.write("config.json", {**plan.to_json(), "versions": versions(), "commits": commits()})
    for part, levels in (("test", plan.test), ("train", plan.train)):
        plan.suite(part).write_text(levels.suite(part, plan.options.episodes))
    if left_out := missing_page():
        say(left_out)
    failures = dict[str, str]()

    def ended(cell: ExperimentCell, why: str) -> None:
        if why:
            failures[cell.name] = one_line(why)
        _write_results(plan, folder, failures, command)

    with interruption.defer():  # the first signal lets the cells that run save
        (run_on_ray if plan.options.ray_address else run_cells)(plan, interruption, say, ended)
    matrix = _write_results(plan, folder, failures, command)
    if plan.options.bucket:  # The folders of its cells are there already.
        try:
            copy_files(folder.path, plan.copy)
        except (ConfigError, RunError) as error:
            say(f"warning: the results are not in {plan.copy}: {error}")
    return matrix, failures


def _write_results(
    plan: ExperimentPlan, folder: ExperimentFolder, failures: dict[str, str], command: str
) -> Matrix:
    """Writes the results after each cell, so that a kill leaves them."""
    options = plan.options
    results = {cell: read_results(cell) for cell in plan.cells}
    cells = list(results)
    finished = [cell for cell, measured in results.items() if measured is not None]
    groups = results_by_group(results)
    columns = {group: [seed.columns for seed in seeds] for group, seeds in groups.items()}
    spreads = {group: [seed.spreads(options.eval_freq) for seed in seeds] for group, seeds in groups.items()}
    matrix = decide(columns, spreads, options.weights, options.move)
    folder.write("all_results.json", {"cells": [_result(*found, failures) for found in results.items()]})
    if options.bucket:
        copies = {cell.name: plan.copy_of(cell) for cell in finished}
        folder.write("s3_manifest.json", {"copies": copies})
    write_matrix(folder, matrix, [f"{name}: {why}" for name, why in failures.items()], command)
    if not missing_page():
        folder.write("report.html", experiment_page(plan, matrix, failures, command))
    write_tensorboard(folder.path / "comparison", cells, finished)
    _write_aggregates(results)
    return matrix


def _result(cell: ExperimentCell, measured: Measured | None, failures: dict[str, str]) -> dict[str, Any]:
    found = {"cell": cell.name, "folder": str(cell.folder), "architecture": cell.architecture}
    found |= {"mode": cell.mode, "seed": str(cell.seed)}
    if measured is None:
        why = failures.get(cell.name, "")
        return {**found, "state": "failed" if why else "unfinished", "reason": why}
    return {**found, "state": "finished", **vars(measured)}


def _write_aggregates(results: Mapping[ExperimentCell, Measured | None]) -> None:
    """Writes aggregate.json beside the runs of several seeds: the mean of each column over finished ones.

    Without runs that were to start from a clone and did not.
    """
    for group in {cell.group: None for cell in results}:
        members = [cell for cell in results if cell.group == group]
        seeds = [x.columns for cell in members if (x := results[cell]) is not None and not x.clone]
        if seeds and len(members) > 1:
            columns = {name: [seed[name] for seed in seeds] for name in seeds[0]}
            means = {name: sum(values) / len(values) for name, values in columns.items()}
            finite = {name: x if abs(x) < float("inf") else None for name, x in means.items()}
            place = ExperimentFolder(members[0].folder.parent)
            place.write("aggregate.json", {"seeds": len(seeds), "mean": finite})
