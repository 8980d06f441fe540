"""The run that clones a policy, from a configuration to a report in its folder."""

from __future__ import annotations

import logging
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config.environment import spec_of
from jaxrl.evaluation.policy_function import unit_of_densities
from jaxrl.parallel.processes import Processes
from jaxrl.runs.clones import REPORT
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.records import MetricsTail
from jaxrl.runs.signals import Interruption
from jaxrl.training.cloning import CloningPlan, best_validation, cloning_config, report
from jaxrl.training.run import Invocation, RunOutcome, run

log = logging.getLogger(__name__)


def clone(
    config: ConfigDict,
    plan: CloningPlan,
    workdir: str,
    interruption: Interruption,
    processes: Processes = Processes(),  # noqa: B008
) -> tuple[RunOutcome, dict[str, Any] | None]:
    """Clones, or continues where a run in `workdir` was stopped.

    Returns:
      (the end of the run, what is known of the clone, which the folder has as clone.json; None if a signal
      ended it).

    Raises:
      ConfigError: the configuration, the data or the folder is wrong.
      RunError: it cannot continue.
    """
    cloning, dataset = cloning_config(config, plan)
    outcome = run(cloning, workdir, interruption, Invocation(processes=processes))
    if outcome.exit_code or not outcome.is_first:
        return outcome, None
    folder = RunFolder(outcome.folder)
    stored = folder.read_config()
    spec = spec_of(stored.env)
    _, rows = MetricsTail(folder.path).poll()
    merged: dict[str, Any] = {}
    for row in rows:
        merged |= row
    if plan.patience:
        merged |= best_validation(rows)
    found = report(plan, dataset, spec, unit_of_densities(stored), merged)
    folder.write_report(REPORT, found)
    if not found["passed"]:
        log.info("the clone is no better than one without observations: %s", found["loss"])
    return outcome, found
