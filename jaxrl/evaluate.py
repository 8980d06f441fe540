"""Evaluates a trained policy: `python -m jaxrl.evaluate --workdir=DIR`.

  --workdir=DIR    folder of the run
  --episodes=N     how many episodes to play, exactly (default: 100)
  --checkpoint=S   which checkpoint: latest (default), best, or a step
  --sample         sample actions instead of taking the most likely ones
  --seed=K         decides the episodes (default: 0)
  --debug          full tracebacks instead of one line for bad input

Every environment plays a fixed share of the episodes, from a fresh reset; the normaliser is frozen.
Prints the result and writes it to DIR/evaluations/.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from jaxrl import cli, storage
from jaxrl.config import ConfigError, versions

if TYPE_CHECKING:
    from jaxrl.checkpoint import Checkpointer
    from jaxrl.evaluation import Result


def evaluate(
    workdir: str, episodes: int, checkpoint: str = "latest", sample: bool = False, seed: int = 0
) -> tuple[int, Result]:
    """Plays exactly `episodes` episodes with a checkpoint of a run, on all devices.

    Args:
      workdir: folder of the run.
      episodes: how many.
      checkpoint: "latest", "best" (by greedy return during training) or a step.
      sample: sample actions instead of taking the most likely ones.
      seed: decides the resets, and the actions with `sample`.

    Returns:
      (step of the checkpoint, result).

    Raises:
      ConfigError: the folder is no run.
      CheckpointError: it has no such checkpoint, or that is damaged.
    """
    import jax

    from envs import registry
    from envs.vector import VectorEnv
    from jaxrl import networks, sharding
    from jaxrl.checkpoint import Checkpointer, CheckpointError, CorruptCheckpoint
    from jaxrl.evaluation import Evaluator
    from jaxrl.iteration import Program, hyperparams_of
    from jaxrl.run_folder import RunFolder

    config = RunFolder(workdir).read_config()
    env = registry.make(config.env.name, config.env.wrappers)
    policy = networks.build(config.network, env.spec)
    topology = sharding.Topology.of(jax.device_count())
    checkpoints = Checkpointer(f"{workdir}/checkpoints", create=False)
    step = _step(checkpoints, checkpoint)
    program = Program.build(config, env, policy, sharding.Axis())
    shapes = jax.eval_shape(program.init, jax.random.key(0), hyperparams_of(config))
    wanted = {"params": shapes.params, "obs_stats": shapes.obs_stats}
    abstract = topology.abstract(wanted, dict.fromkeys(wanted, sharding.REPLICATED))
    try:
        restored = checkpoints.restore_partial(step, ("params", "obs_stats"), abstract)
    except CorruptCheckpoint as error:
        # Only a trainer may set it aside and go on from another; here the user chooses.
        intact = ", ".join(str(s) for s in checkpoints.intact_steps()) or "none"
        raise CheckpointError(f"{error}; intact steps for --checkpoint: {intact}") from error
    checkpoints.close()
    evaluator = Evaluator(policy, VectorEnv(env), topology, config)
    result = evaluator(restored["params"], restored["obs_stats"], jax.random.key(seed), episodes, sample)
    return step, result


def _step(checkpoints: Checkpointer, wanted: str) -> int:
    if wanted not in ("latest", "best") and not wanted.isdigit():
        raise ConfigError(f"`--checkpoint` (={wanted!r}) must be latest, best or a step")
    if wanted == "latest":
        step = checkpoints.latest_step()
    elif wanted == "best":
        step = checkpoints.best_step()
    else:
        step = int(wanted)
    if step is None:
        raise ConfigError(f"`--checkpoint` (={wanted!r}): the run has none")
    return step


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the evaluation that `argv` asks for; returns the exit code (2: bad input)."""
    argv = sys.argv if argv is None else argv
    if {"--help", "-h", "-help"} & set(argv):
        print(__doc__)
        return 0
    return cli.exit_code(lambda: _job(argv), "--debug" in argv)


def _job(argv: Sequence[str]) -> int:
    values = flags.FlagValues()
    flags.DEFINE_string("workdir", None, "Folder of the run.", flag_values=values)
    flags.DEFINE_integer("episodes", 100, "Episodes to play.", lower_bound=1, flag_values=values)
    flags.DEFINE_string("checkpoint", "latest", "latest, best or a step.", flag_values=values)
    flags.DEFINE_bool("sample", False, "Sample actions.", flag_values=values)
    flags.DEFINE_integer("seed", 0, "Decides the episodes.", lower_bound=0, flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    cli.parse_flags(values, argv)
    workdir = values["workdir"].value
    if not workdir:
        raise ConfigError("`--workdir` is missing: name the folder of a run")
    storage.require_run_folder("--workdir", workdir)

    from jaxrl import sharding
    from jaxrl.run_folder import RunFolder

    sharding.offer_cpu_devices(sharding.available_cores())
    folder = RunFolder(workdir)
    asked: dict[str, Any] = {
        name: values[name].value for name in ("episodes", "checkpoint", "sample", "seed")
    }
    step, result = evaluate(workdir, **asked)
    _show(step, result)
    mode = "sample" if asked["sample"] else "greedy"
    record = {"step": step, "mode": mode, "seed": asked["seed"], **dataclasses.asdict(result)}
    file = folder.write_evaluation(
        f"step-{step}-{mode}-{result.episodes}-seed-{asked['seed']}", record | {"versions": versions()}
    )
    print(f"written to {file}")
    return 0


def _show(step: int, result: Result) -> None:
    print(f"checkpoint  step {step:,}")
    print(f"episodes    {result.episodes}")
    print(f"return      {result.mean:.2f}  95% confidence [{result.low:.2f}, {result.high:.2f}]")
    print(f"            std {result.std:.2f}, from {result.minimum:.2f} to {result.maximum:.2f}")
    print(f"length      {result.mean_length:.1f} steps, std {result.std_length:.1f}")
    if result.unfinished:
        print(f"unfinished  {result.unfinished} episodes were cut off: the environment has no time limit")


if __name__ == "__main__":
    sys.exit(main())
