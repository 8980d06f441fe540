"""Writes the policies of several runs, which act together, as one export."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrl.config.sections import GREEDY
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.policy_function import PolicyFunction
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.inference import export
from jaxrl.inference.ensemble_function import EnsembleFunction


def export_ensemble(
    runs: Sequence[str],
    kind: str,
    output: str,
    checkpoint: str = "best",
    batch: int | None = None,
    steps: int = 200,
    trust: bool = False,
) -> export.Exported:
    """Exports the ensemble of some runs and checks it; arguments and errors as in `export.export`.

    It plays the environment of the first run, and the members' actions are greedy.
    """
    policies = [trained_policy.load(run, checkpoint, devices=1, trust=trust) for run in runs]
    function = EnsembleFunction.of([PolicyFunction.of(policy) for policy in policies])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        description = write(policies, function, folder, kind, batch)
        return export.check_export(function, folder, description, Path(output), policies, steps, batch)


def write(
    policies: Sequence[TrainedPolicy],
    function: EnsembleFunction,
    folder: Path,
    kind: str,
    batch: int | None = None,
) -> dict[str, Any]:
    """Writes an export without checking it; returns the content of policy.json.

    Raises:
      ConfigError, RunError: as for `export.export`.
    """
    files, sizes = export.write_files(function, folder, kind, batch)
    members = {f"member_{i}": export.facts(policy) for i, policy in enumerate(policies)}
    description = {
        **export.describe_function(function, policies[0].config, kind),
        "mode": GREEDY,
        "mean": dataclasses.asdict(function.mean),
        "members": members,
        "files": files,
        "batch": sizes,
    }
    (folder / export.DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
    return description
