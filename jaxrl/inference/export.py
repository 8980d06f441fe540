"""Writes a policy in one of the formats and checks that the files act as the policy does."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxrl.config import ConfigError, to_json, versions
from jaxrl.config.errors import RunError, errors_as
from jaxrl.config.local_files import replacing, require_no_links
from jaxrl.config.sections import GREEDY
from jaxrl.envs.host_env import HostEnvError
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.policy_function import ActingFunction, PolicyFunction, flat
from jaxrl.evaluation.result import mode_name
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.inference import formats, onnx
from jaxrl.inference.ensemble import EnsembleFunction
from jaxrl.inference.equivalence import EquivalenceCheck, Runner, compare

DESCRIPTION = "policy.json"
ANY_SIZE = "any size"
# In which a policy that takes any batch is checked, side by side.
_ENVIRONMENTS = 8


@dataclasses.dataclass(frozen=True)
class Exported:
    """An export of policies: what was written and how it was checked.

    Attributes:
      description: the content of policy.json.
      check: the comparison with the policies; nothing was written unless it is the `same`.
      files: sizes in bytes, by name.
    """

    policies: Sequence[TrainedPolicy]
    description: Mapping[str, Any]
    check: EquivalenceCheck
    files: Mapping[str, int]


def export(
    runs: Sequence[str],
    kind: str,
    output: str,
    checkpoint: str = "best",
    sample: bool | None = None,
    batch: int | None = None,
    steps: int = 200,
    trust: bool = False,
) -> Exported:
    """Exports the policy of a run, or the ensemble of several, and checks it.

    Args:
      runs: their folders; the check plays the environment of the first one.
      kind: stablehlo, onnx, numpy or safetensors.
      output: local folder, made if it is missing; files of an earlier export are replaced.
      checkpoint: "best", "latest" or a step.
      sample: True samples actions, from an additional input `key` (stablehlo only), False takes the most
        likely ones; None: stablehlo as evaluations during training judged the policy, the others the latter.
        Actions of an ensemble are greedy.
      batch: fixed batch size; None for any.
      steps: how many to play for the check.
      trust: import the modules that the run's configuration names.

    Raises:
      ConfigError: the folder is not a run's, or a package that the format needs is missing.
      CheckpointError: there is no such checkpoint, or it is damaged.
      RunError: the network cannot be written in this format, or an environment failed.
    """
    if isinstance(runs, str) or not runs:
        raise ConfigError(f"`runs` (={runs!r}) must be the folders of one or several runs")
    policies = [trained_policy.load(run, checkpoint, devices=1, trust=trust) for run in runs]
    function: ActingFunction
    if len(policies) > 1:
        function = EnsembleFunction.of([PolicyFunction.of(policy) for policy in policies])
    else:
        (policy,) = policies
        function = PolicyFunction.of(policy, policy.draws(sample) if kind == "stablehlo" else bool(sample))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        description = write(policies, function, folder, kind, batch)
        return check_export(function, folder, description, Path(output), policies, steps, batch)


def check_export(
    function: ActingFunction,
    folder: Path,
    description: dict[str, Any],
    output: Path,
    policies: Sequence[TrainedPolicy],
    steps: int,
    batch: int | None,
) -> Exported:
    """Compares the files of `folder` with `function`; publishes them in `output` if they act as it does.

    `description` is the content of policy.json so far; the environment of the first of the `policies` is
    played. `steps`, `batch` and errors are as in `export`.
    """
    runner, runtime = read(function, folder, description["format"])
    env = policies[0].config.env
    environments = batch or (_ENVIRONMENTS if description["batch"] == ANY_SIZE else 1)
    with errors_as(RunError, "", HostEnvError):
        (check,) = compare(function, {"": runner}, env.name, env.wrappers, steps, environments).values()
    description["check"] = dataclasses.asdict(check) | {"runtime": runtime}
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
    files = [*description["files"], DESCRIPTION]
    sizes = {name: (folder / name).stat().st_size for name in files}
    if check.same:
        _publish(folder, output, files, [policy.folder for policy in policies])
    return Exported(policies, description, check, sizes)


def write(
    policies: Sequence[TrainedPolicy],
    function: ActingFunction,
    folder: Path,
    kind: str,
    batch: int | None = None,
) -> dict[str, Any]:
    """Writes an export of `function`, of `policies`, unchecked; returns policy.json; raises as `export`."""
    files, sizes = _write_files(function, folder, kind, batch)
    config = policies[0].config
    arguments = function.example(1)
    outputs = onnx.outputs(function) if kind == "onnx" else dict(flat(jax.eval_shape(function, *arguments)))
    facts = [_facts(policy) for policy in policies]
    if function.mean is None:
        (described,) = facts
    else:
        members = {f"member_{i}": each for i, each in enumerate(facts)}
        described = {"mode": GREEDY, "mean": dataclasses.asdict(function.mean), "members": members}
    description = {
        "format": kind,
        "environment": {"name": config.env.name, "wrappers": list(config.env.wrappers)},
        "actions": mode_name(function.sample),
        "arguments": ["obs", "carry", "reset", *function.extras],
        "inputs": _signature(function.inputs(arguments)),
        "outputs": _signature(outputs),
        "arrays": _signature(formats.arrays_by_name(function), batched=False),
        "versions": versions(),
        **described,
        "files": files,
        "batch": sizes,
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
    return description


def read(function: ActingFunction, folder: Path, kind: str) -> tuple[Runner, str]:
    """(function that runs the files of an export of `function`, name of its runtime)."""
    if kind in ("numpy", "safetensors"):
        return formats.read_arrays(folder, function)
    if kind == "onnx":
        return onnx.read(folder, function), "onnxruntime"
    return formats.read_stablehlo(folder), "jax"


def _write_files(
    function: ActingFunction, folder: Path, kind: str, batch: int | None
) -> tuple[list[str], str]:
    """Writes all but policy.json; returns (names of the files, batch sizes that they take, in words)."""
    normalizers = (part.state.obs_stats for part in function.parts.values())
    if kind != "stablehlo" and any(stats is not None and stats.count.ndim for stats in normalizers):
        raise ConfigError(
            f"`--format` (={kind!r}) must be stablehlo where observations are normalised task by task"
        )
    if kind in ("numpy", "safetensors"):
        return formats.write_arrays(function, folder, kind), ANY_SIZE
    write = onnx.write if kind == "onnx" else formats.write_stablehlo
    try:
        return write(function, folder, batch), f"{batch} only" if batch else ANY_SIZE
    except formats.NotPolymorphic as error:
        return write(function, folder, 1), f"1 only: {error}"


def _signature(arrays: dict[str, Any], batched: bool = True) -> dict[str, Any]:
    """Shapes and dtypes as JSON values; the batch dimension is `"batch"`."""

    def shape(name: str, x: Any) -> list[Any]:
        return ["batch", *x.shape[1:]] if batched and name != "key" else list(x.shape)

    return {name: {"shape": shape(name, x), "dtype": str(x.dtype)} for name, x in arrays.items()}


def _facts(policy: TrainedPolicy) -> dict[str, Any]:
    """The part of policy.json that is about one policy."""
    config = policy.config
    is_normalized = policy.state.obs_stats is not None
    return {
        "step": policy.step,
        "mode": policy.mode,
        "normalizer": {"clip": config.normalize.clip_observations} if is_normalized else None,
        "network": to_json(config)["network"],
        "architecture": policy.agent.architecture(),
    }


def _publish(folder: Path, output: Path, files: list[str], runs: Sequence[str]) -> None:
    """Copies the files, each whole or not at all, the description last; follows no link in a run's folder."""
    with errors_as(ConfigError, f"`--output` (={output}) cannot be written", OSError):
        for run in runs:
            if output.is_relative_to(run):
                require_no_links(run, output)
        output.mkdir(parents=True, exist_ok=True)
        for name in files:
            with (folder / name).open("rb") as source, replacing(output / name) as target:
                shutil.copyfileobj(source, target)
