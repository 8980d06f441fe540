"""A model as a folder: the policy in each format that runs it, checked, with all that explains it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.config import ConfigError, to_json, versions
from jaxrl.config.errors import RunError, errors_as
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, Mixed, MultiDiscrete, Space
from jaxrl.envs.host_env import HostEnvError
from jaxrl.evaluation.policy_function import PolicyFunction
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.inference import export, model_card
from jaxrl.inference.equivalence import EquivalenceCheck, Runner, compare_all
from jaxrl.runs import storage
from jaxrl.runs.clones import data_of
from jaxrl.runs.commits import commits, origin
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.records import stored_object
from jaxrl.runs.registry import write_checksums

SCHEMA = 1
OBSERVATIONS = 500  # that the formats are checked on
_ENVIRONMENTS = 4
_MOST_BOUNDS = 4096  # that are listed; of more only the outermost


@dataclasses.dataclass(frozen=True)
class ModelDetails:
    """The part of a model's record that the policy itself does not give.

    Attributes:
      licence: the licence of the model, such as an SPDX identifier.
      evaluation: metrics by name, of the episodes that were played before the deployment; may be empty.
      gates: the conditions that held, as text.
    """

    licence: str = ""
    evaluation: Mapping[str, float] = dataclasses.field(default_factory=dict)
    gates: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ModelContent:
    """The files and forms that `write` wrote.

    Attributes:
      checks: the comparison with the run's policy, by format.
      left_out: why a format is missing, by format.
    """

    checks: Mapping[str, EquivalenceCheck]
    left_out: Mapping[str, str]


def write(
    policy: TrainedPolicy, folder: Path, details: ModelDetails, observations: int = OBSERVATIONS
) -> ModelContent:
    """Writes a model and its checksums.

    Args:
      folder: an empty local folder.
      details: for its record.
      observations: how many the formats are checked on, in `_ENVIRONMENTS` environments.

    Raises:
      RunError: a format does not act as the policy does, or an environment failed.
    """
    function = PolicyFunction.of(policy)
    forms, runners, left_out = _write_forms(policy, function, folder)
    env = policy.config.env
    steps = -(-observations // _ENVIRONMENTS)
    with errors_as(RunError, "", HostEnvError):
        checks = compare_all(function, runners, env.name, env.wrappers, steps, _ENVIRONMENTS)
    for kind, check in checks.items():
        if not check.same:
            rows = check.steps * check.environments
            raise RunError(
                f"the {kind} form does not act as the run: {check.different_actions} of {rows} actions differ"
            )
    record = _record(policy, details, forms, checks, left_out)
    _write_json(folder / "config.json", to_json(policy.config))
    _write_json(folder / "spaces.json", describe(policy.spec))
    _write_json(folder / "evaluation.json", dict(details.evaluation))
    _write_json(folder / "model.json", record)
    (folder / "MODEL.md").write_text(model_card.text(record, policy.config))
    write_checksums(folder)
    return ModelContent(checks, left_out)


def _write_forms(
    policy: TrainedPolicy, function: PolicyFunction, folder: Path
) -> tuple[dict[str, Any], dict[str, Runner], dict[str, str]]:
    """(files and batch sizes, runners, reasons for skipped ones), by format.

    The description of the arrays comes last: policy.json is theirs.
    """
    arrays = "safetensors" if importlib.util.find_spec("safetensors") else "numpy"
    forms: dict[str, Any] = {}
    runners: dict[str, Runner] = {}
    left_out: dict[str, str] = {}
    for kind in ("stablehlo", "onnx", arrays):
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(temporary)
            try:
                description = export.write(policy, function, place, kind)
                runners[kind], _ = export.read(function, place, kind)
            except (ConfigError, RunError) as error:
                left_out[kind] = str(error)
                continue
            forms[kind] = {"files": description["files"], "batch": description["batch"]}
            for file in (*description["files"], export.DESCRIPTION):
                shutil.copyfile(place / file, folder / file)
    return forms, runners, left_out


def _record(
    policy: TrainedPolicy,
    details: ModelDetails,
    forms: Mapping[str, Any],
    checks: Mapping[str, EquivalenceCheck],
    left_out: Mapping[str, str],
) -> dict[str, Any]:
    config = policy.config
    # Missing of a run that still trains.
    trained = stored_object(RunFolder(policy.folder).path / "summary.json")
    return {
        "schema": SCHEMA,
        "environment": {"name": config.env.name, "wrappers": list(config.env.wrappers)},
        "algorithm": config.algorithm,
        "licence": details.licence or "not stated",
        "forms": dict(forms),
        "left_out": dict(left_out),
        "checks": {kind: dataclasses.asdict(check) for kind, check in checks.items()},
        "evaluation": dict(details.evaluation),
        "gates": list(details.gates),
        "provenance": {
            "run": policy.folder,
            "identity": _identity(policy.folder),
            "step": policy.step,
            "seed": config.seed,
            "trained_from": trained.get("commits", {}),
            "trained_with": trained.get("versions", {}),
            "data": data_of(policy.folder),
            "deployed_from": dict(commits()),
            "deployed_with": versions(),
            **origin(),
        },
    }


def _identity(run: str) -> str:
    with contextlib.suppress(OSError, ValueError), storage.as_os_errors():
        return RunFolder(run).stored_identity
    return ""


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def describe(spec: EnvSpec) -> dict[str, Any]:
    """`{"observation": ..., "action": ..., "action_mask": choices or None}`.

    An array has `type` (box, discrete, multi_discrete), `shape` and `dtype`, and `low` and `high` (None for
    no bound), `n` or `nvec`, and `start` of integers that do not begin at 0. A `dict` has its `spaces`; an
    action of several parts is `mixed`, with `parts` in the order of the policy's vector.
    """
    return {
        "observation": _space(spec.observation_space),
        "action": _space(spec.action_space),
        "action_mask": spec.mask_size if spec.has_action_mask else None,
    }


def _space(space: Space) -> dict[str, Any]:
    if isinstance(space, Dict):
        return {"type": "dict", "spaces": {name: _space(part) for name, part in space.spaces}}
    array = {"shape": list(space.shape), "dtype": str(np.dtype(space.dtype))}
    if isinstance(space, Mixed):
        return {"type": "mixed", **array, "parts": {name: _space(part) for name, part in space.spaces}}
    if isinstance(space, Discrete):
        return {"type": "discrete", **array, "n": int(space.n), **_start(space.start)}
    if isinstance(space, MultiDiscrete):
        return {
            "type": "multi_discrete",
            **array,
            "nvec": [int(n) for n in space.nvec],
            **_start(space.start),
        }
    assert isinstance(space, Box)
    return {"type": "box", **array, "low": _bound(space.low, min), "high": _bound(space.high, max)}


def _start(first: int | tuple[int, ...]) -> dict[str, Any]:
    return {"start": np.array(first).tolist()} if first else {}


def _bound(values: tuple[float, ...], outermost: Any) -> Any:
    """A number for equal bounds or very many, else a list; None is no bound."""
    if len(set(values)) == 1 or len(values) > _MOST_BOUNDS:
        return _finite(outermost(values))
    return [_finite(x) for x in values]


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None
