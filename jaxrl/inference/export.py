"""Writes a policy in one of the formats and checks that the files act as the policy does."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax

from jaxrl.config import ConfigError, to_json, versions
from jaxrl.config.errors import RunError
from jaxrl.config.local_files import replacing, require_no_links
from jaxrl.envs.host_env import HostEnvError
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.modes import mode_name
from jaxrl.evaluation.policy_function import NotPolymorphic, PolicyFunction, flat, signature
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.inference import arrays, onnx, stablehlo
from jaxrl.inference.equivalence import EquivalenceCheck, Runner, compare

DESCRIPTION = "policy.json"


@dataclasses.dataclass(frozen=True)
class Exported:
    """An export: what was written and how it was checked.

    Attributes:
      step: the checkpoint's step.
      actions: how they are chosen, greedy or sampled.
      mode: in which evaluations during training judged the policy.
      batch: the batch sizes that it takes, in words.
      runtime: what ran the files in the check.
      check: the comparison with the policy; nothing was written unless it is the `same`.
      files: sizes in bytes, by name.
    """

    step: int
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
    checkpoint: str = "latest",
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
      checkpoint: "latest", "best" or a step.
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
        runner, runtime = read(function, folder, kind)
        env = policy.config.env
        try:
            check = compare(function, runner, env.name, env.wrappers, steps, batch or 8)
        except HostEnvError as error:
            raise RunError(str(error)) from error
        description["check"] = dataclasses.asdict(check) | {"runtime": runtime}
        (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
        files = [*description["files"], DESCRIPTION]
        found = {name: (folder / name).stat().st_size for name in files}
        if check.same:
            _publish(folder, Path(output), files, policy.folder)
    return Exported(
        step=policy.step,
        actions=description["actions"],
        mode=policy.mode,
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
    network = policy.agent.architecture()
    files, sizes = _write(function, network, folder, kind, batch)
    description = _description(policy, function, kind) | {
        "files": files,
        "batch": sizes,
        "architecture": network,
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
    return description


def read(function: PolicyFunction, folder: Path, kind: str) -> tuple[Runner, str]:
    """(function that runs the files of an export of `function`, name of its runtime)."""
    if kind in ("numpy", "safetensors"):
        return arrays.read(folder, function)
    if kind == "onnx":
        return onnx.read(folder, function), "onnxruntime"
    return stablehlo.read(folder), "jax"


def _write(
    function: PolicyFunction, network: dict[str, Any] | None, folder: Path, kind: str, batch: int | None
) -> tuple[list[str], str]:
    """(names of the files, batch sizes that they take, in words)."""
    if kind != "stablehlo" and function.state.obs_stats is not None and function.state.obs_stats.count.ndim:
        raise ConfigError(
            f"`--format` (={kind!r}) must be stablehlo where observations are normalised task by task"
        )
    if kind in ("numpy", "safetensors"):
        return arrays.write(function, folder, kind), "any size"
    if kind == "onnx":
        return onnx.write(function, network, folder, batch), f"{batch} only" if batch else "any size"
    try:
        return stablehlo.write(function, folder, batch), f"{batch} only" if batch else "any size"
    except NotPolymorphic as error:
        return stablehlo.write(function, folder, 1), f"1 only: {error}"


def _description(policy: TrainedPolicy, function: PolicyFunction, kind: str) -> dict[str, Any]:
    arguments = function.example(1)
    outputs = onnx.outputs(function) if kind == "onnx" else dict(flat(jax.eval_shape(function, *arguments)))
    config = policy.config
    normalizer = None if function.state.obs_stats is None else {"clip": config.normalize.clip_observations}
    return {
        "format": kind,
        "environment": {"name": config.env.name, "wrappers": list(config.env.wrappers)},
        "step": policy.step,
        "actions": mode_name(function.sample),
        "mode": policy.mode,
        "arguments": ["obs", "carry", "reset", *function.extras],
        "inputs": signature(function.inputs(arguments)),
        "outputs": signature(outputs),
        "normalizer": normalizer,
        "network": to_json(config)["network"],
        "arrays": signature(arrays.named(function), batched=False),
        "versions": versions(),
    }


def _publish(folder: Path, output: Path, files: list[str], workdir: str) -> None:
    """Copies the files, each whole or not at all, the description last; follows no link in a run's folder."""
    try:
        if output.is_relative_to(workdir):
            require_no_links(workdir, output)
        output.mkdir(parents=True, exist_ok=True)
        for name in files:
            with (folder / name).open("rb") as source, replacing(output / name) as target:
                shutil.copyfileobj(source, target)
    except OSError as error:
        raise ConfigError(f"`--output` (={output}) cannot be written: {error}") from error
