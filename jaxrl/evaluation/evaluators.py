"""The evaluator of an environment, on devices or on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import algorithms
from jaxrl.algorithms import Agent
from jaxrl.config import Config
from jaxrl.config.sections import GREEDY, SAMPLED, EnvConfig
from jaxrl.envs import registry
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.graphs import have_equal_graphs
from jaxrl.envs.host_env import HostFactory, HostOptions
from jaxrl.envs.vector_mixture import BatchedEnv, vector_env
from jaxrl.evaluation.evaluator import STREAM, DeviceEvaluator, Evaluator, Modes, Played
from jaxrl.experience.episodes import Episodes
from jaxrl.experience.host.episodes import HostPlayer, quotas
from jaxrl.experience.statistics import NO_REPORTS, EpisodeReports
from jaxrl.parallel import process_group
from jaxrl.parallel.sharding import Topology, one_copy
from jaxrl.types import Acting, Array, PyTree


@dataclass(frozen=True)
class EvaluationTask:
    """An environment to play, and the values to record of it.

    Attributes:
      env, wrappers: as in a configuration.
      reports: the values to record of each episode beside its return and length.
    """

    env: str
    wrappers: tuple[str, ...] = ()
    reports: EpisodeReports = NO_REPORTS

    @classmethod
    def of(cls, env: EnvConfig, spec: EnvSpec) -> EvaluationTask:
        """The environment of a configuration; `spec` is its spec."""
        return cls(env.name, env.wrappers, EpisodeReports.of(spec, env.success))

    def environment(self) -> BatchedEnv:
        """The environment, which is JAX code, for as many rows as it is called with."""
        return vector_env(registry.make(self.env, self.wrappers))


def build(
    config: Config,
    task: EvaluationTask,
    agent: Agent,
    topology: Topology,
    given_up: Callable[[], bool] = lambda: False,
) -> Evaluator:
    """Builds the evaluator of a task; `config` sets how host environments are started."""
    if registry.is_host(task.env):
        factory = registry.make_host(task.env, task.wrappers)
        return HostEvaluator(agent, factory, config, task.reports, given_up)
    env = task.environment()
    return DeviceEvaluator(agent_of(config, agent, env.spec), env, topology, task.reports, given_up)


def agent_of(config: Config, agent: Agent, spec: EnvSpec) -> Agent:
    """The agent that plays an environment with the parameters of `agent`, which was built for another one.

    It is another agent if the spaces hold other graphs: parameters do not depend on these, networks do.
    """
    same = have_equal_graphs(spec.observation_space, agent.spec.observation_space)
    return agent if same else algorithms.build_agent(config, spec)


@dataclass(eq=False)
class HostEvaluator(Evaluator):
    """Plays host environments, every process its share.

    Attributes:
      factory: of the environments, started afresh for each evaluation.
      config: sets how many environments are played side by side and how they are started.
      reports: the values to record beside returns and lengths.
      given_up: called now and then; True if the result is not wanted any more.
    """

    agent: Agent
    factory: HostFactory
    config: Config
    reports: EpisodeReports = NO_REPORTS
    given_up: Callable[[], bool] = lambda: False
    _players: dict[bool, HostPlayer] = field(default_factory=dict, init=False)

    @property
    def compiled(self) -> tuple[()]:
        return ()

    def compile(self, state: Acting, episodes: int, modes: Modes = (GREEDY,), tasks: PyTree = None) -> None:
        """Nothing: what playing takes is compiled with the first episode."""

    def play(
        self, state: Acting, key: Array, episodes: int, modes: Modes = (GREEDY,), tasks: PyTree = None
    ) -> Played:
        assert tasks is None, "environments on the host name no groups of tasks"
        # One after the other: twice as many processes or threads may be too many for a machine.
        return {mode: self._play(state, key, episodes, mode == SAMPLED) for mode in modes}

    def _play(self, state: Acting, key: Array, episodes: int, sample: bool) -> Episodes:
        if sample:
            self.agent.require_samples()
        if sample not in self._players:
            self._players[sample] = HostPlayer(self.agent, self.factory, sample, self.reports)
        num_envs = min(episodes, self.config.env.num_envs)
        mine = process_group.share(num_envs)
        key = jax.random.fold_in(key, STREAM)
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(num_envs)[mine])
        played: list[list[float]] = []
        if len(keys):
            episodes_E = self._players[sample].play(
                self._options(keys), one_copy(state), keys, quotas(num_envs, episodes)[mine], self.given_up
            )
            own = (episodes_E.episode_return, episodes_E.length, episodes_E.finished)
            rows = (*own, *jax.tree.leaves(episodes_E.tallies))
            played = np.stack([np.asarray(x, np.float64)[episodes_E.played] for x in rows]).tolist()
        parts = [part for part in process_group.everywhere(played) if part]
        score, length, finished, *told = (np.concatenate(x) for x in zip(*parts, strict=True))
        tallies = jax.tree.unflatten(jax.tree.structure(self.reports.begin(0, np)), told)
        on_host: dict[str, Any] = {
            "episode_return": score,
            "length": length.astype(int),
            "played": np.ones(len(score), bool),
            "finished": finished.astype(bool),
            "tallies": tallies,
        }
        return Episodes(**on_host)

    def _options(self, keys: Array) -> HostOptions:
        host = self.config.host
        n = len(keys)
        seeds = jax.vmap(lambda key: jax.random.randint(key, (), 0, 2**31 - 1))(keys)
        divides = n % host.num_groups == 0
        return HostOptions(
            seeds=tuple(map(int, seeds)),
            num_groups=host.num_groups if divides else 1,
            num_workers=host.num_workers,
            timeout=host.timeout,
            info_keys=self.reports.info_keys,
        )
