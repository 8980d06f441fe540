"""jaxrl deploy RUN: puts a run's policy into a registry of models.

Plays episodes, checks the gate, writes the policy in every format that its
network permits, and compares each with the run on 500 observations. Only then
does the new version appear, and `latest` and --stage point at it. Exit code 3:
a gate is closed. docs/serving.md has the layout and how to serve it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxrl.commands import command_line
from jaxrl.commands.arguments import CHECKPOINT, SEED, TRUST, RunFlags, flag
from jaxrl.config import ConfigError
from jaxrl.config.sections import SAMPLED
from jaxrl.config.text import count, number
from jaxrl.runs.registry import DEFAULT, Gate, ModelRegistry, check_name, check_stage

if TYPE_CHECKING:
    from jaxrl.inference.deployment import Deployment


class _Flags(RunFlags):
    to: str = flag("--to=DIR", "the registry, a folder or gs:// or s3:// (default: {default})", DEFAULT)
    name: str | None = flag("--name=NAME", "of the model (default: the name of the run's folder)")
    stage: str = flag("--stage=STAGE", "staging or production, which is to point at it too", "")
    checkpoint: str = CHECKPOINT
    gate: str | None = flag(
        "--gate=CONDITIONS",
        'what the evaluation must meet: "success_rate>=0.9", several with commas; any metric of jaxrl '
        "evaluate, such as mean, the mean return",
    )
    episodes: int = flag(
        "--episodes=N",
        "greedy episodes to evaluate (default: {default}; 0 for none)",
        100,
        within=(0, command_line.MOST_EPISODES),
    )
    seed: int = SEED
    mlflow: str = flag(
        "--mlflow=URI",
        "register it with MLflow too, http(s)://HOST or sqlite:///FILE; stages become aliases",
        "",
    )
    licence: str = flag("--licence=ID", "the model's licence, such as Apache-2.0, for its card", "")
    trust: bool = TRUST


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    """Deploys what `argv` asks for; returns the exit code (1: acts differently; 2: bad input; 3: gate)."""
    workdir = flags.folder(left)
    gates = Gate.parse(flags.gate) if flags.gate else ()
    if gates and not flags.episodes:
        raise ConfigError(f"`--gate` (={flags.gate!r}) needs episodes: --episodes is 0")
    name = check_name("--name", flags.name or os.path.basename(os.path.abspath(workdir)))
    if flags.stage:
        check_stage("--stage", flags.stage)
    command_line.require_writable_folder("to", flags.to)
    registry = ModelRegistry(flags.to, "--to", writable=True)

    from jaxrl.inference import deployment
    from jaxrl.reporting.writers.tracker import keep_off_terminal

    if flags.mlflow:
        deployment.require_mlflow(flags.mlflow)
        for library in deployment.MLFLOW_LIBRARIES:
            keep_off_terminal(library)
    settings = ("stage", "checkpoint", "episodes", "seed", "licence", "trust")
    asked = {name: getattr(flags, name) for name in settings}
    made = deployment.deploy(workdir, registry, name, gates=gates, **asked)
    _show(name, made)
    if uri := flags.mlflow:
        with registry.fetch(name, made.number) as folder:
            version = deployment.register_with_mlflow(uri, name, folder, made)
        command_line.say(f"mlflow      {name} version {version} at {uri}")
    return 0


def _show(name: str, made: Deployment) -> None:
    from jaxrl.evaluation.result import cut

    print(f"checkpoint  {made.policy.checkpoint}")
    if made.evaluation:
        shown = {"mean": "mean return", "success_rate": "success rate"}
        found = [
            f"{words} {number(made.evaluation[k])}" for k, words in shown.items() if k in made.evaluation
        ]
        command_line.say(f"evaluated   {count(made.evaluation['episodes'])} episodes, {', '.join(found)}")
        if said := cut(made.evaluation["unfinished"], made.evaluation["episodes"]):
            command_line.say(f"cut off     {said}")
    if made.policy.mode == SAMPLED:
        command_line.say(
            "note        evaluations during training were better sampled; models take the most likely action"
        )
    for kind, check in made.checks.items():
        rows = check.steps * check.environments
        largest = max(check.largest_difference.values())
        print(f"checked     {kind}: the same actions in all {rows}, differences at most {largest:.1e}")
    for kind, why in made.left_out.items():
        command_line.say(f"without     {kind}: {why}")
    command_line.say(f"deployed    {name} version {made.number}: {made.place}")
    for stage, before in made.moved.items():
        command_line.say(f"{stage:<11} version {made.number}{f', was {before}' if before else ''}")
