"""Writes a policy in one of the formats and checks that the files act as the policy does."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from jaxrl.config import Config, ConfigError, to_json, versions
from jaxrl.config.errors import RunError, errors_as
from jaxrl.config.local_files import replacing, require_no_links
from jaxrl.envs.host_env import HostEnvError
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.modes import mode_name
from jaxrl.evaluation.policy_function import ActingFunction, NotPolymorphic, PolicyFunction, flat, signature
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.inference import arrays, onnx, stablehlo
from jaxrl.inference.equivalence import EquivalenceCheck, Runner, compare

DESCRIPTION = "policy.json"
ANY_SIZE = "any size"
# In which a policy that takes any batch is checked, side by side.
_ENVIRONMENTS = 8


@dataclasses.dataclass(frozen=True)
class Exported:
    """An export: what was written and how it was checked.

    Attributes:
      checkpoints: which one, of each policy, in words.
      actions: how they are chosen, greedy or sampled.
      mode: in which evaluations during training judged the policy.
      batch: the batch sizes that it takes, in words.
      runtime: the program that ran the files in the check.
      check: the comparison with the policy; nothing was written unless it is the `same`.
      files: sizes in bytes, by name.
    """

    checkpoints: tuple[str, ...]
    actions: str
    mode: str
    batch: str
    runtime: str
    check: EquivalenceCheck
    files: dict[str, int]


def export(
    workdir: str,
    kind: str,
    output: str,
    checkpoint: str = "best",
    sample: bool | None = None,
    batch: int | None = None,
    steps: int = 200,
    trust: bool = False,
) -> Exported:
    """Exports a policy of a run and checks it.

    Args:
      workdir: the run's folder.
      kind: stablehlo, onnx, numpy or safetensors.
      output: local folder, made if it is missing; files of an earlier export are replaced.
      checkpoint: "best", "latest" or a step.
      sample: True samples actions, from an additional input `key` (stablehlo only), False takes the most
        likely ones; None: stablehlo as evaluations during training judged the policy, the others the latter.
      batch: fixed batch size; None for any.
      steps: how many to play for the check.
      trust: import the modules that the run's configuration names.

    Raises:
      ConfigError: the folder is not a run's, or a package that the format needs is missing.
      CheckpointError: there is no such checkpoint, or it is damaged.
      RunError: the network cannot be written in this format, or an environment failed.
    """
    policy = trained_policy.load(workdir, checkpoint, devices=1, trust=trust)
    draws = policy.draws(sample) if kind == "stablehlo" else bool(sample)
    function = PolicyFunction.of(policy, draws)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        description = write(policy, function, folder, kind, batch)
        return check_export(function, folder, description, Path(output), [policy], steps, batch)


def check_export(
    function: ActingFunction,
    folder: Path,
    description: dict[str, Any],
    output: Path,
    policies: Sequence[TrainedPolicy],
    steps: int,
    batch: int | None,
) -> Exported:
    """Compares the files of `folder` with `function`, and publishes them if they act as it does.

    Args:
      folder: written already.
      description: the content of policy.json so far.
      output: where the files go.
      policies: whose environment, the first one's, is played.
      batch: the requested batch size; None for any.

    Raises:
      ConfigError, RunError: as for `export`.
    """
    runner, runtime = read(function, folder, description["format"])
    env = policies[0].config.env
    environments = batch or (_ENVIRONMENTS if description["batch"] == ANY_SIZE else 1)
    with errors_as(RunError, "", HostEnvError):
        check = compare(function, runner, env.name, env.wrappers, steps, environments)
    description["check"] = dataclasses.asdict(check) | {"runtime": runtime}
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
    files = [*description["files"], DESCRIPTION]
    found = {name: (folder / name).stat().st_size for name in files}
    if check.same:
        _publish(folder, output, files, [policy.folder for policy in policies])
    return Exported(
        checkpoints=tuple(policy.checkpoint for policy in policies),
        actions=description["actions"],
        mode=description["mode"],
        batch=description["batch"],
        runtime=runtime,
        check=check,
        files=found,
    )


def write(
    policy: TrainedPolicy, function: PolicyFunction, folder: Path, kind: str, batch: int | None = None
) -> dict[str, Any]:
    """Writes an export without checking it; returns the content of policy.json.

    Raises:
      ConfigError, RunError: as for `export`.
    """
    files, sizes = write_files(function, folder, kind, batch)
    description = {
        **describe_function(function, policy.config, kind),
        **facts(policy),
        "files": files,
        "batch": sizes,
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
    return description


def read(function: ActingFunction, folder: Path, kind: str) -> tuple[Runner, str]:
    """(function that runs the files of an export of `function`, name of its runtime)."""
    if kind in ("numpy", "safetensors"):
        return arrays.read(folder, function)
    if kind == "onnx":
        return onnx.read(folder, function), "onnxruntime"
    return stablehlo.read(folder), "jax"


def write_files(
    function: ActingFunction, folder: Path, kind: str, batch: int | None
) -> tuple[list[str], str]:
    """Writes all but policy.json; returns (names of the files, batch sizes that they take, in words)."""
    if kind != "stablehlo" and any(_is_normalized_by_task(part) for part in function.parts.values()):
        raise ConfigError(
            f"`--format` (={kind!r}) must be stablehlo where observations are normalised task by task"
        )
    if kind in ("numpy", "safetensors"):
        return arrays.write(function, folder, kind), ANY_SIZE
    form = onnx if kind == "onnx" else stablehlo
    try:
        return form.write(function, folder, batch), f"{batch} only" if batch else ANY_SIZE
    except NotPolymorphic as error:
        return form.write(function, folder, 1), f"1 only: {error}"


def _is_normalized_by_task(function: PolicyFunction) -> bool:
    stats = function.state.obs_stats
    return stats is not None and bool(stats.count.ndim)


def describe_function(function: ActingFunction, config: Config, kind: str) -> dict[str, Any]:
    """The part of policy.json that is about arguments and results."""
    arguments = function.example(1)
    outputs = onnx.outputs(function) if kind == "onnx" else dict(flat(jax.eval_shape(function, *arguments)))
    return {
        "format": kind,
        "environment": {"name": config.env.name, "wrappers": list(config.env.wrappers)},
        "actions": mode_name(function.sample),
        "arguments": ["obs", "carry", "reset", *function.extras],
        "inputs": signature(function.inputs(arguments)),
        "outputs": signature(outputs),
        "arrays": signature(arrays.arrays_by_name(function), batched=False),
        "versions": versions(),
    }


def facts(policy: TrainedPolicy) -> dict[str, Any]:
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
