"""Fair evaluation of a policy: a fixed number of whole episodes, on devices or on the host."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

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
from jaxrl.envs.vector_mixture import BatchedEnv, MixtureVectorEnv, vector_env
from jaxrl.experience.episodes import EpisodePlayer, Episodes
from jaxrl.experience.host.episodes import HostPlayer, quotas
from jaxrl.experience.host.threads import Cancelled
from jaxrl.experience.statistics import NO_REPORTS, EpisodeReports
from jaxrl.parallel import process_group
from jaxrl.parallel.compilation import compile_in_turn
from jaxrl.parallel.process_exit import abandon
from jaxrl.parallel.sharding import REPLICATED, SHARDED, Topology, one_copy, to_host
from jaxrl.types import Acting, Array, Axis, PyTree

# How actions are chosen, and the episodes played, by mode.
Modes = tuple[str, ...]
Played = Mapping[str, Episodes]

Tree = TypeVar("Tree")  # of arrays

# Environments played side by side at most; more episodes are played one after the other.
MAX_ENVIRONMENTS = 1024  # in each mode

# Seconds between looks at a program that plays.
_SHORTEST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05

# Keeps the keys of evaluations apart from the keys of training.
STREAM = 0x4556414C


@dataclass(frozen=True)
class EvaluationTask:
    """An environment to play, and the values to record of it.

    `env` and `wrappers` are as in a configuration; `reports` are recorded beside returns and lengths.
    """

    env: str
    wrappers: tuple[str, ...] = ()
    reports: EpisodeReports = NO_REPORTS

    @classmethod
    def of(cls, env: EnvConfig, spec: EnvSpec) -> EvaluationTask:
        """The environment of a configuration, whose spec is `spec`."""
        return cls(env.name, env.wrappers, EpisodeReports.of(spec, env.success))

    def environment(self) -> BatchedEnv:
        """The environment, which is JAX code, for as many rows as it is called with."""
        return vector_env(registry.make(self.env, self.wrappers))


class Evaluator(abc.ABC):
    """Plays episodes of one environment with one policy."""

    @property
    @abc.abstractmethod
    def compiled(self) -> Sequence[Any]:
        """The programs that have been compiled ahead of time."""

    @abc.abstractmethod
    def compile(self, state: Acting, episodes: int, modes: Modes = (GREEDY,), tasks: PyTree = None) -> None:
        """Compiles ahead of `play` what can be compiled; `state` may be abstract."""

    @abc.abstractmethod
    def play(
        self, state: Acting, key: Array, episodes: int, modes: Modes = (GREEDY,), tasks: PyTree = None
    ) -> Played:
        """Host copies of exactly `episodes` episodes by mode, from fresh resets and fresh carries.

        Args:
          key: decides the resets, which are the same in all modes, and the actions that are sampled.
          modes: how actions are chosen, see `jaxrl.evaluation.result.MODES`.
          tasks: arrays of numpy [N, ...], dealt to the environments cyclically, each for all of its
            episodes; the program is the same for others. None: the default task.

        Raises:
          ConfigError: the policy has nothing to sample.
          HostEnvError: an environment on the host failed or hung.
          Cancelled: a signal ended the wait.
        """


@dataclass(eq=False)
class DeviceEvaluator(Evaluator):
    """Plays JAX environments on all devices, each its share.

    The environments are not staggered: evaluation episodes are whole. `given_up` is called now and then; True
    if the result is not wanted any more.
    """

    agent: Agent
    env: BatchedEnv
    topology: Topology
    reports: EpisodeReports = NO_REPORTS
    given_up: Callable[[], bool] = lambda: False
    _compiled: dict[tuple[int, Modes, bool], Callable[..., Played]] = field(default_factory=dict, init=False)

    def play(
        self, state: Acting, key: Array, episodes: int, modes: Modes = (GREEDY,), tasks: PyTree = None
    ) -> Played:
        kind = (episodes, modes, tasks is not None)
        if kind not in self._compiled:
            self.compile(state, episodes, modes, tasks)
        # A stream of its own: `split(key)[i]` equals `fold_in(key, i)`, and training splits the seed's key.
        given = (jax.random.fold_in(key, STREAM), dealt(tasks, episodes))
        return await_episodes(self._compiled[kind](state, *self.topology.replicate(given)), self.given_up)

    @property
    def compiled(self) -> Sequence[Any]:
        return tuple(self._compiled.values())

    def compile(self, state: Acting, episodes: int, modes: Modes = (GREEDY,), tasks: PyTree = None) -> None:
        if SAMPLED in modes:
            self.agent.require_samples()
        program = player(self.agent, self.env, self.topology.axis, episodes, modes, self.reports)
        sharded = self.topology.shard(program, (REPLICATED,) * 3, SHARDED, brief=True)
        given = jax.eval_shape(lambda: (jax.random.key(0), dealt(tasks, episodes)))
        given = self.topology.abstract(given, REPLICATED)
        kind = (episodes, modes, tasks is not None)
        self._compiled[kind] = compile_in_turn(lambda: sharded.lower(state, *given))


def dealt(tasks: PyTree, episodes: int) -> PyTree:
    """The task of each environment that plays so many episodes; None of None."""
    return jax.tree.map(lambda x: x[np.arange(min(episodes, MAX_ENVIRONMENTS)) % len(x)], tasks)


def player(
    agent: Agent,
    env: BatchedEnv,
    axis: Axis,
    episodes: int,
    modes: Modes = (GREEDY,),
    reports: EpisodeReports = NO_REPORTS,
) -> Callable[[Acting, Array], Played]:
    """Returns a device's part of a program that plays `episodes` episodes in each mode over all of `axis`.

    The modes play side by side, in environments that begin alike. Its third argument comes from `dealt`.
    """
    # As many on every number of devices, which then play the same episodes; some devices may have idle ones.
    environments = min(episodes, MAX_ENVIRONMENTS)
    # Rows of several tasks have them by their places, alike in each mode and on each device.
    period = len(env.env.pattern) if isinstance(env, MixtureVectorEnv) else 1
    per_device = -(-environments // (axis.size * period)) * period

    def program(state: Acting, key: Array, tasks: PyTree = None) -> Played:
        index = axis.index() * per_device + jnp.arange(per_device)
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)
        share = episodes // environments + (index < episodes % environments).astype(jnp.int32)
        quota = jnp.where(index < environments, share, 0)
        most = -(-episodes // environments)
        task_E = jax.tree.map(lambda x: x[index % environments], tasks)
        sample: bool | Array = modes[0] == SAMPLED
        if len(modes) > 1:
            keys, quota, task_E = jax.tree.map(
                lambda x: jnp.concatenate([x] * len(modes)), (keys, quota, task_E)
            )
            sample = jnp.repeat(jnp.array([mode == SAMPLED for mode in modes]), per_device)
        with jax.named_scope("evaluate"):  # a phase of profiles
            played = EpisodePlayer(agent, env, reports).play(state, keys, quota, most, sample, task_E)
        return {
            mode: jax.tree.map(lambda x: x[i * per_device : (i + 1) * per_device], played)  # noqa: B023
            for i, mode in enumerate(modes)
        }

    return program


def await_episodes(played: Tree, given_up: Callable[[], bool]) -> Tree:
    """Waits for devices so that a signal can end the wait, with Cancelled; returns host copies."""
    leaves = jax.tree.leaves(played)
    pause = _SHORTEST_PAUSE
    while not all(x.is_ready() for x in leaves):
        if given_up():
            abandon(lambda: all(x.is_ready() for x in leaves))
            raise Cancelled("the evaluation was given up")
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return to_host(played)


@dataclass(eq=False)
class HostEvaluator(Evaluator):
    """Plays host environments, every process its share.

    They are started afresh for each evaluation, as `config` says. `given_up` as for devices.
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
        seeds = jax.vmap(lambda key: jax.random.randint(key, (), 0, 2**31 - 1))(keys)
        return HostOptions(
            seeds=tuple(map(int, seeds)),
            num_groups=1 if len(keys) % host.num_groups else host.num_groups,
            num_workers=host.num_workers,
            timeout=host.timeout,
            info_keys=self.reports.info_keys,
        )


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
