"""The two ways to train: environments inside the compiled program, or on the host beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import jax

from envs import registry
from envs.vector import VectorEnv
from jaxrl import networks
from jaxrl.config import Config
from jaxrl.evaluation.evaluator import Evaluator, Result, samples
from jaxrl.evaluation.host_evaluator import HostEvaluator
from jaxrl.metrics.clock import Clock
from jaxrl.networks import Policy
from jaxrl.parallel.coordination import Agreement
from jaxrl.parallel.sharding import Topology
from jaxrl.rollout.episodes import Episodes
from jaxrl.training.host_runtime import HostRuntime
from jaxrl.training.iteration import Program
from jaxrl.training.pipeline import Pipeline
from jaxrl.training.sharded_program import ShardedProgram
from jaxrl.types import Array, PyTree, TrainState, Trajectory


class DeviceRuntime(Pipeline):
    """Training on environments that are JAX code: whole iterations are one program.

    Attributes:
      env, policy: what is trained, on what.
      program: the program over all devices.
    """

    def __init__(self, config: Config, topology: Topology, clock: Clock, agreement: Agreement) -> None:
        self.env = registry.make(config.env.name, config.env.wrappers)
        self.policy = networks.build(config.network, self.env.spec)
        self.program = ShardedProgram(Program.build(config, self.env, self.policy, topology.axis), topology)
        super().__init__(self.program.no_metrics(), clock, agreement)

    def compile(self) -> None:
        """Compiles what training takes."""
        self.train = self.compiled = self.program.lower_repeat().compile()

    def prepare(self, state: TrainState) -> TrainState:
        """Makes everything ready for a first iteration from `state`; returns the state to begin with."""
        return state

    def rollout(self, state: TrainState) -> tuple[TrainState, Trajectory, Any]:
        """Steps the environments by one rollout: (state, trajectory, totals over the episodes that ended)."""
        return self.program.rollout(state)

    def culprit(self, state: TrainState) -> Trajectory:
        """The rollout of the iteration after `state`, which was found not to be finite."""
        return self.program.rollout(state, donate=False)[1]

    def shares(self) -> dict[str, float]:
        """Metrics of where the time of the log interval went."""
        return {}

    def close(self) -> None:
        """Ends what runs beside the program; a later rollout starts it again."""


Runtime = DeviceRuntime | HostRuntime


class AnyEvaluator(Protocol):
    """`Evaluator` or `HostEvaluator`."""

    @property
    def compiled(self) -> Iterable[Any]: ...

    def __call__(
        self, params: PyTree, obs_stats: PyTree, key: Array, episodes: int, sample: bool = False
    ) -> Result: ...

    def play(
        self, params: PyTree, obs_stats: PyTree, key: Array, episodes: int, sample: bool = False
    ) -> Episodes: ...

    def compile(self, params: PyTree, obs_stats: PyTree, episodes: int, sample: bool = False) -> None: ...


def build(config: Config, topology: Topology, clock: Clock, agreement: Agreement) -> Runtime:
    """The runtime of `env.name`.

    Args:
      config: the resolved configuration.
      topology: all devices.
      clock: learns what training takes.
      agreement: with the other processes.
    """
    if registry.is_host(config.env.name):
        return HostRuntime(config, topology, clock, agreement)
    return DeviceRuntime(config, topology, clock, agreement)


class Evaluators:
    """What plays the environments of a configuration, by the prefix of their metrics."""

    def __init__(
        self, config: Config, policy: Policy, topology: Topology, given_up: Callable[[], bool]
    ) -> None:
        self._config = config
        names = {"eval/": config.env.name, "eval/unseen_": config.evaluate.unseen}
        self._evaluators = {
            prefix: evaluator(config, name, policy, topology, given_up)
            for prefix, name in names.items()
            if name
        }

    def __iter__(self) -> Iterator[AnyEvaluator]:
        return iter(self._evaluators.values())

    @property
    def compiled(self) -> list[Any]:
        """What has been compiled so far."""
        return [program for each in self for program in each.compiled]

    def play(
        self,
        prefix: str,
        state: TrainState,
        iteration: int,
        episodes: int | None = None,
        sample: bool = False,
    ) -> Episodes:
        """Plays `episodes` of one environment, or as many as the configuration says."""
        key = jax.random.fold_in(jax.random.key(self._config.seed), iteration)
        count = episodes or self._config.evaluate.episodes
        return self._evaluators[prefix].play(state.params, state.obs_stats, key, count, sample)

    def __call__(self, state: TrainState, iteration: int) -> tuple[Result, dict[str, float], dict[str, Any]]:
        """Plays greedy episodes of all.

        Returns:
          (result in the environment trained on, metrics, returns and lengths of the single episodes).
        """
        row: dict[str, float] = {}
        found: dict[str, Any] = {}
        played = {prefix: self.play(prefix, state, iteration) for prefix in self._evaluators}
        for prefix, episodes in played.items():
            result = Result.of(episodes)
            values = {"return": result.mean, "return_std": result.std, "length": result.mean_length}
            row |= {f"{prefix}{name}": value for name, value in values.items()}
            found |= {f"{prefix}{name}": values for name, values in samples(episodes).items()}
        return Result.of(played["eval/"]), row, found


def evaluator(
    config: Config,
    name: str,
    policy: Policy,
    topology: Topology,
    given_up: Callable[[], bool] = lambda: False,
) -> AnyEvaluator:
    """What plays episodes of the environment `name` with the wrappers of the configuration."""
    if registry.is_host(name):
        return HostEvaluator(policy, registry.make_host(name, config.env.wrappers), config, given_up)
    return Evaluator(policy, VectorEnv(registry.make(name, config.env.wrappers)), topology, config)
