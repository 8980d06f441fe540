"""A model as a folder: the policy in each format that runs it, checked, with all that explains it."""

from __future__ import annotations

import contextlib
import dataclasses
import html
import importlib.util
import json
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.config import Config, ConfigError, to_json, versions
from jaxrl.config.errors import RunError, errors_as
from jaxrl.config.text import count, number, one_line
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, Mixed, MultiDiscrete, Space
from jaxrl.envs.host_env import HostEnvError
from jaxrl.evaluation.policy_function import PolicyFunction
from jaxrl.evaluation.result import cut
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.inference import export
from jaxrl.inference.equivalence import EquivalenceCheck, Runner, compare
from jaxrl.runs import storage
from jaxrl.runs.clones import data_of
from jaxrl.runs.commits import commits, origin
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.records import stored_object
from jaxrl.runs.registry import write_checksums

SCHEMA = 1
_ENVIRONMENTS = 4
_MOST_BOUNDS = 4096  # that are listed; of more only the outermost


def write(
    policy: TrainedPolicy,
    folder: Path,
    licence: str = "",
    evaluation: Mapping[str, float] | None = None,
    gates: Sequence[str] = (),
    observations: int = 500,
) -> tuple[dict[str, EquivalenceCheck], dict[str, str]]:
    """Writes a model and its checksums.

    Args:
      folder: an empty local folder.
      licence: of the model, such as an SPDX identifier.
      evaluation: metrics by name, of the episodes that were played before the deployment.
      gates: the conditions that held, as text.
      observations: how many the formats are checked on, in `_ENVIRONMENTS` environments.

    Returns:
      (comparisons with the run's policy, reasons for missing formats), by format.

    Raises:
      RunError: a format does not act as the policy does, or an environment failed.
    """
    function = PolicyFunction.of(policy)
    forms, runners, left_out = _write_forms(policy, function, folder)
    env = policy.config.env
    steps = -(-observations // _ENVIRONMENTS)
    with errors_as(RunError, "", HostEnvError):
        checks = compare(function, runners, env.name, env.wrappers, steps, _ENVIRONMENTS)
    for kind, check in checks.items():
        if not check.same:
            rows = check.steps * check.environments
            raise RunError(
                f"the {kind} form does not act as the run: {check.different_actions} of {rows} actions differ"
            )
    config = policy.config
    identity = ""
    with contextlib.suppress(OSError, ValueError), storage.as_os_errors():
        identity = RunFolder(policy.folder).stored_identity
    # Missing of a run that still trains.
    trained = stored_object(RunFolder(policy.folder).path / "summary.json")
    record = {
        "schema": SCHEMA,
        "environment": {"name": env.name, "wrappers": list(env.wrappers)},
        "algorithm": config.algorithm,
        "licence": licence or "not stated",
        "forms": forms,
        "left_out": left_out,
        "checks": {kind: dataclasses.asdict(check) for kind, check in checks.items()},
        "evaluation": dict(evaluation or {}),
        "gates": list(gates),
        "provenance": {
            "run": policy.folder,
            "identity": identity,
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
    files = {
        "config": to_json(config),
        "spaces": describe(policy.spec),
        "evaluation": record["evaluation"],
        "model": record,
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    (folder / "MODEL.md").write_text(card(record, config))
    write_checksums(folder)
    return checks, left_out


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
                description = export.write([policy], function, place, kind)
                runners[kind], _ = export.read(function, place, kind)
            except (ConfigError, RunError) as error:
                left_out[kind] = str(error)
                continue
            forms[kind] = {"files": description["files"], "batch": description["batch"]}
            for file in (*description["files"], export.DESCRIPTION):
                shutil.copyfile(place / file, folder / file)
    return forms, runners, left_out


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
        nvec = [int(n) for n in space.nvec]
        return {"type": "multi_discrete", **array, "nvec": nvec, **_start(space.start)}
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


def card(record: Mapping[str, Any], config: Config) -> str:
    """The card, in Markdown, of the content of model.json."""
    origin = record["provenance"]
    environment = record["environment"]
    facts = {
        "environment": environment["name"],
        "wrappers": ", ".join(environment["wrappers"]) or "none",
        "algorithm": record["algorithm"],
        "network": f"{config.network.encoder} encoder, {config.network.core} core",
        "licence": record["licence"],
        "run": origin["run"],
        "identity of the run": origin["identity"] or "unknown",
        "step": f"{origin['step']:,}",
        "seed": origin["seed"],
        "commit": _commit(origin["trained_from"]),
        "data": _data(origin["data"]),
        "deployed by": f"{origin['command']} on {origin['host']}",
    }
    lines = ["# Model card", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
    lines += ["", "## Evaluation", ""]
    if record["evaluation"]:
        lines += ["| metric | value |", "|---|---|"]
        for name, value in record["evaluation"].items():
            shown = count(value) if float(value).is_integer() else number(value)
            lines.append(f"| {_cell(name)} | {shown} |")
        lines += ["", "Greedy episodes in the environment above, played before the deployment."]
        if said := cut(record["evaluation"].get("unfinished", 0), record["evaluation"]["episodes"]):
            lines += ["", f"{said}. Their returns are of what was played."]
    else:
        lines.append("None was made.")
    if record["gates"]:
        lines += ["", f"Conditions that held: {_cell(', '.join(record['gates']))}."]
    lines += ["", "## Formats", ""]
    lines += ["| format | files | observations | differing actions |", "|---|---|---|---|"]
    for kind, form in record["forms"].items():
        check = record["checks"][kind]
        rows = check["steps"] * check["environments"]
        lines.append(f"| {kind} | {', '.join(form['files'])} | {rows} | {check['different_actions']} |")
    for kind, why in record["left_out"].items():
        lines += ["", f"No {kind}: {_cell(why)}"]
    lines += [
        "",
        "`policy.json` and `spaces.json` describe the files and their arguments; `checksums.json` has the",
        "SHA-256 of each. `jaxrl serve` answers by whichever format is fastest.",
        "",
    ]
    return "\n".join(lines)


def _commit(found: Mapping[str, Any]) -> str:
    said = [
        f"{place} {entry.get('commit')}{'' if entry.get('clean') else ' with changes'}"
        for place, entry in found.items()
        if isinstance(entry, Mapping)
    ]
    return "; ".join(said) or "unknown"


def _data(found: Mapping[str, Any]) -> str:
    """The demonstrations that were learnt from, as `clones.data_of` has them."""
    if not found:
        return "none recorded"
    said = [f"{count(found[name])} {name}" for name in ("episodes", "steps") if name in found]
    said += [f"played by {', '.join(map(str, found['players']))}"] if found.get("players") else []
    said += [f"digest {found['digest']}"] if "digest" in found else []
    return ", ".join([found["folder"], *said, f"learnt in {found['run']}"])


def _cell(value: object) -> str:
    """Text of anyone in one cell, without Markdown or HTML of its own."""
    return html.escape(one_line(value), quote=False).replace("|", "\\|").replace("`", "\\`")
