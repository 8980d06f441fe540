"""The stages of a cell, each a command of `jaxrl` that can be run again by itself."""

from __future__ import annotations

from jaxrl.experiments.cells import ExperimentCell, ExperimentPlan

PRETRAIN = "pretrain"
TRAIN = "train"
LATENCY = "latency"
EXPORT = "export"
SUITES = {"evaluate-test": "test", "evaluate-train": "train"}


def commands(plan: ExperimentPlan, cell: ExperimentCell) -> dict[str, list[str]]:
    """The arguments of `jaxrl` by stage, in the order in which they run."""
    run = str(cell.folder)
    trust = ["--trust"] if ":" in cell.architecture else []
    found = {PRETRAIN: plan.pretrain_arguments(cell)} if cell.pretrains else {}
    found[TRAIN] = [TRAIN, f"--config={cell.folder.with_suffix('.py')}", f"--workdir={run}"]
    for stage, part in SUITES.items():
        found[stage] = ["evaluate", run, f"--suite={plan.suite(part)}", *trust]
    found[LATENCY] = ["inference-benchmark", f"--workdir={run}", "--batch=1", *trust]
    found[EXPORT] = ["export", run, "--format=stablehlo", *trust]
    return found
