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

from jaxrl.algorithms import Agent
from jaxrl.config.sections import GREEDY, SAMPLED
from jaxrl.envs.vector_mixture import BatchedEnv, MixtureVectorEnv
from jaxrl.experience.episodes import EpisodePlayer, Episodes
from jaxrl.experience.host.threads import Cancelled
from jaxrl.experience.statistics import NO_REPORTS, EpisodeReports
from jaxrl.parallel.compilation import compile_in_turn
from jaxrl.parallel.process_exit import abandon
from jaxrl.parallel.sharding import REPLICATED, SHARDED, Topology, to_host
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
          modes: how actions are chosen, see `jaxrl.evaluation.modes`.
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

    Attributes:
      env: environments, not staggered: evaluation episodes are whole.
      reports: as for `EpisodePlayer`.
      given_up: called now and then; True if the result is not wanted any more.
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
        return {mode: _rows(played, i * per_device, per_device) for i, mode in enumerate(modes)}

    return program


def _rows(played: Episodes, start: int, count: int) -> Episodes:
    return jax.tree.map(lambda x: x[start : start + count], played)


def await_episodes(played: Tree, given_up: Callable[[], bool]) -> Tree:
    """Waits for the devices, for which nothing else could be interrupted; returns host copies.

    Raises:
      Cancelled: a signal ended the wait.
    """
    leaves = jax.tree.leaves(played)
    pause = _SHORTEST_PAUSE
    while not all(x.is_ready() for x in leaves):
        if given_up():
            abandon(lambda: all(x.is_ready() for x in leaves))
            raise Cancelled("the evaluation was given up")
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return to_host(played)
