"""A trained policy, read from a run's folder without anything of its training."""

from __future__ import annotations

import dataclasses

import jax

from envs import registry
from envs.base import EnvSpec, zeros
from jaxrl import networks
from jaxrl.config import Config, ConfigError
from jaxrl.networks import Policy, normalizer
from jaxrl.parallel import sharding, tpu_slices
from jaxrl.runs.checkpoint import Checkpointer, CheckpointError, CorruptCheckpoint
from jaxrl.runs.folder import RunFolder
from jaxrl.types import PyTree


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a checkpoint holds of a policy, and what it was built from.

    Attributes:
      config: the configuration of the run.
      spec: of the environment it was trained on.
      policy: the network.
      params: its parameters, replicated over `topology`.
      obs_stats: frozen running moments of the observations, or None.
      step: that of the checkpoint.
      topology: the devices that hold the arrays.
    """

    config: Config
    spec: EnvSpec
    policy: Policy
    params: PyTree
    obs_stats: PyTree
    step: int
    topology: sharding.Topology


def load(workdir: str, checkpoint: str = "latest", devices: int | None = None) -> Trained:
    """Reads a policy.

    Args:
      workdir: folder of the run, local or gs://.
      checkpoint: "latest", "best" (by greedy return during training) or a step.
      devices: how many are to hold it; None for all.

    Raises:
      ConfigError: the folder is no run, or `checkpoint` is no name of one.
      CheckpointError: it has no such checkpoint, or that is damaged.
    """
    tpu_slices.hush_libtpu()
    config = RunFolder(workdir).read_config()
    spec = registry.spec_of(config.env.name, config.env.wrappers)
    policy = networks.build(config.network, spec)
    topology = sharding.Topology.of(devices or jax.device_count())
    checkpoints = Checkpointer(f"{workdir}/checkpoints", create=False)
    step = step_of(checkpoints, checkpoint)
    normalized = config.normalize.observations
    wanted = {
        "params": jax.eval_shape(policy.init, jax.random.key(0)),
        "obs_stats": jax.eval_shape(lambda: normalizer.init(zeros(spec.observation_space)))
        if normalized
        else None,
    }
    abstract = topology.abstract(wanted, dict.fromkeys(wanted, sharding.REPLICATED))
    try:
        found = checkpoints.restore_partial(step, ("params", "obs_stats"), abstract)
    except CorruptCheckpoint as error:
        # Only a trainer may set it aside and go on from another; here the user chooses.
        intact = ", ".join(str(s) for s in checkpoints.intact_steps()) or "none"
        raise CheckpointError(f"{error}; intact steps for --checkpoint: {intact}") from error
    finally:
        checkpoints.close()
    return Trained(config, spec, policy, found["params"], found["obs_stats"], step, topology)


def step_of(checkpoints: Checkpointer, wanted: str) -> int:
    """The step that `--checkpoint` names.

    Raises:
      ConfigError: it is no name of a checkpoint, or there is none.
    """
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
