"""A trained policy, read from a run's folder without anything of its training."""

from __future__ import annotations

import dataclasses

import jax

from jaxrl import algorithms
from jaxrl.algorithms import Agent
from jaxrl.config import Config, ConfigError, check_same_spaces, environment_spec, from_json
from jaxrl.config.construction import admit
from jaxrl.config.errors import RunError, errors_as
from jaxrl.config.sections import GREEDY, SAMPLED
from jaxrl.envs import registry
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.host_env import HostEnvError
from jaxrl.evaluation.evaluator import EvaluationTask, Modes, build
from jaxrl.evaluation.result import MODES, Result, report_values
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.parallel import sharding, tpu_slices
from jaxrl.runs import members
from jaxrl.runs.checkpoint import Checkpointer, CheckpointError, CorruptCheckpoint
from jaxrl.runs.checkpoint.checkpoint_record import MODE
from jaxrl.runs.folder import RunFolder
from jaxrl.types import Acting

# Where a checkpoint holds an `Acting`, as a path of fields of `TrainState`.
_STORED = "learner/policy"


@dataclasses.dataclass(frozen=True)
class TrainedPolicy:
    """The policy of a checkpoint, with the configuration that it was built from.

    Attributes:
      config: its configuration; of a run in stages that of the checkpoint's stage.
      spec: of the environment it was trained on.
      state: its parameters and frozen statistics, replicated over `topology`.
      chosen: why that one, in words; "" if it was requested by its step.
      topology: the devices that hold the arrays.
      mode: greedy or sampled, in which evaluations during training judged it by its return.
    """

    folder: str
    config: Config
    spec: EnvSpec
    agent: Agent
    state: Acting
    step: int
    topology: sharding.Topology
    mode: str = GREEDY
    chosen: str = ""

    @property
    def checkpoint(self) -> str:
        """The checkpoint in words: `step 40,960, the best by evaluation`."""
        return f"step {self.step:,}{self.chosen and f', {self.chosen}'}"

    def draws(self, asked: bool | None = None) -> bool:
        """True if actions are to be sampled: as `asked`, and with None in the mode that judged the policy.

        Raises:
          ConfigError: sampling is requested, and the policy has nothing to sample.
        """
        if asked:
            self.agent.require_samples()
        return self.mode == SAMPLED if asked is None else asked


def load(
    workdir: str,
    checkpoint: str = "best",
    devices: int | None = None,
    trust: bool = False,
    trust_said_by: str = "--trust",
) -> TrainedPolicy:
    """Reads a policy.

    Args:
      workdir: folder of the run, local or gs://; of a population the best member's policy is read.
      checkpoint: "best" (by evaluation during training; the latest of a run without any), "latest" or a step.
      devices: how many are to hold it; None for all.
      trust: import the modules that the run's configuration names, see `jaxrl.config.construction`.
      trust_said_by: how the user would set it, for the error.

    Raises:
      ConfigError: the folder is no run, `checkpoint` is no name of one, the environment cannot be made, or
        the configuration names modules and is not to be trusted.
      CheckpointError: it has no such checkpoint, or that is damaged.
    """
    tpu_slices.hush_libtpu()
    workdir = members.with_policy(workdir)
    config = admit(RunFolder(workdir).read_config(), workdir, trust, trust_said_by)
    checkpoints = Checkpointer(f"{workdir}/checkpoints", create=False)
    step, chosen = _choose(checkpoints, checkpoint)
    try:
        if config.stages:  # In that of the checkpoint it was judged, with its normalisation.
            config = admit(from_json(checkpoints.meta(step)["config"]), workdir, trust, trust_said_by)
        spec = environment_spec("env.name", config.env.name, config.env.name, config.env.wrappers)
        agent = algorithms.build_agent(config, spec)
        topology = sharding.Topology.of(devices or jax.device_count())
        wanted = {_STORED: jax.eval_shape(agent.init, jax.random.key(0))}
        abstract = topology.abstract(wanted, {_STORED: sharding.REPLICATED})
        found = checkpoints.restore_partial(step, (_STORED,), abstract)
        stored = checkpoints.meta(step).get(MODE)
        # Without an evaluation the first of the run's modes.
        mode = str(stored) if stored in MODES else config.evaluate.modes[0]
        mode = mode if agent.samples else GREEDY
    except CorruptCheckpoint as error:
        # Only a trainer may set it aside and take another; here the user chooses.
        intact = ", ".join(str(s) for s in checkpoints.intact_steps()) or "none"
        raise CheckpointError(f"{error}; intact steps for --checkpoint: {intact}") from error
    finally:
        checkpoints.close()
    return TrainedPolicy(workdir, config, spec, agent, found[_STORED], step, topology, mode, chosen)


def evaluate(
    trained: TrainedPolicy, episodes: int, modes: Modes, seed: int = 0, environment: str = ""
) -> dict[str, tuple[Result, dict[str, float]]]:
    """Plays exactly `episodes` episodes in each mode, on all devices of the policy.

    Args:
      modes: see `jaxrl.evaluation.result.MODES`.
      seed: decides the resets, and the actions that are sampled.
      environment: play another one, with the same spaces and the wrappers of the run.

    Returns:
      (result, means of what the environment reports as `report_values` names them), by mode.

    Raises:
      ConfigError: there is no such environment, its spaces are others, or its info does not have what
        `env.success` is about; or the policy has nothing to sample.
      RunError: an environment on the host failed.
    """
    config = trained.config
    env = config.env
    task = EvaluationTask.of(env, trained.spec)
    if environment:
        check_same_spaces("--environment", environment, env)
        reports = EpisodeReports.of(registry.spec_of(environment, env.wrappers), env.success)
        with errors_as(ConfigError, f"`--environment` (={environment!r})", ValueError):
            for key in reports.info_keys:
                registry.check_info_key(environment, env.wrappers, key)
        task = EvaluationTask(environment, env.wrappers, reports)
    player = build(config, task, trained.agent, trained.topology)
    with errors_as(RunError, "", HostEnvError):
        played = player.play(trained.state, jax.random.key(seed), episodes, modes)
    return {mode: (Result.of(x, mode), report_values(task.reports, x)) for mode, x in played.items()}


def _choose(checkpoints: Checkpointer, wanted: str) -> tuple[int, str]:
    """(the step that `--checkpoint` names, why that one, as `TrainedPolicy.chosen`)."""
    if wanted not in ("best", "latest") and not (wanted.isdecimal() and len(wanted) < 18):
        raise ConfigError(f"`--checkpoint` (={wanted!r}) must be best, latest or a step")
    if wanted.isdecimal():
        return int(wanted), ""
    if wanted == "best" and (step := checkpoints.best_step()) is not None:
        return step, "the best by evaluation"
    if (step := checkpoints.latest_step()) is None:
        raise ConfigError(f"`--checkpoint` (={wanted!r}): the run has none")
    return step, "the latest, none was evaluated" if wanted == "best" else "the latest"
