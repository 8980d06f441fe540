"""Whole iterations as pure functions: collect from environments that are JAX code, if at all, then learn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl import algorithms
from jaxrl.algorithms import Agent
from jaxrl.config import Config
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.trees import select_rows
from jaxrl.envs.vector import Environments, VectorEnv
from jaxrl.envs.vector_mixture import vector_env
from jaxrl.experience import curriculum, memory, opponents
from jaxrl.experience.device import DeviceCollector
from jaxrl.experience.episodes import EpisodePlayer
from jaxrl.experience.statistics import SUCCESS, EpisodeReports
from jaxrl.experience.tasks import TASK_KEY, LevelResults, TaskSampler
from jaxrl.metrics import tracing
from jaxrl.metrics.reduction import Interval, Metrics
from jaxrl.parallel.bulk import keep_before_if
from jaxrl.programs.learning import Learning, environment_keys, iteration_keys
from jaxrl.types import (
    Acting,
    Array,
    Axis,
    CollectorState,
    EpisodeTotals,
    PyTree,
    TrainState,
    Trajectory,
)

# Keeps the keys of rollouts that choose levels apart from the keys of training.
_REFRESH = 0x52465348
# Keeps the keys of games that begin with another opponent apart from the keys of steps.
_SWAP = 0x53574150


@flax.struct.dataclass
class _Repeated:
    """The values that one iteration hands to the next; see `Iteration.repeat`."""

    made: Array
    state: TrainState
    interval: Interval
    failed: Array


@dataclass(frozen=True)
class Iteration:
    """The training program of one device, which steps its own environments; without a collector, none."""

    learning: Learning
    collector: DeviceCollector | None

    @classmethod
    def build(
        cls, config: Config, env: JaxEnv | None, agent: Agent, axis: Axis, tasks: TaskSampler | None = None
    ) -> Iteration:
        """Builds the program. It collects nothing without `env`; `tasks` of None are the configuration's."""
        collector = None
        reports = EpisodeReports()
        others = None
        algorithm = algorithms.build(config, agent, axis)
        if env is not None:
            reports = EpisodeReports.of(env.spec, config.env.success)
            tasks = tasks or curriculum.build(config, env, reports)
            others = opponents.build(config, env, agent, axis)
            few_kernels = axis.pays_for_launches
            environments: Environments = vector_env(env, config.env.stagger, few_kernels)
            collector = DeviceCollector(
                agent=algorithm.collecting_agent,
                env=environments if others is None else others.matches,
                length=config.rollout_length,
                chunk=config.sequence_length,
                axis=axis,
                few_kernels=few_kernels,
                unroll=axis.unroll,
                reports=reports,
                tasks=tasks,
            )
        learning = Learning(config, algorithm, memory.build(algorithm.memory), axis, reports, tasks, others)
        return cls(learning, collector)

    def init(self, key: Array, hyperparams: PyTree) -> TrainState:
        """The state before the first iteration; `key` is the run's one source of randomness."""
        params_key, reset_key, run_key = jax.random.split(key, 3)
        collect = self.collector
        if collect is None:
            return self.learning.init(params_key, run_key, hyperparams)
        sampler = self.learning.tasks
        tasks = None if sampler is None else sampler.init(jax.random.fold_in(reset_key, TASK_KEY))
        keys_B, acting_of = self._environment_keys(reset_key), self.learning.algorithm.acting
        collector = collect.init(keys_B, tasks)
        example = lambda learner: collect.collect(collector, acting_of(learner), keys_B, tasks)[1]  # noqa: E731
        state = self.learning.init(params_key, run_key, hyperparams, collector, example)
        others = self.learning.opponents
        opponents = None if others is None else others.init(acting_of(state.learner))
        return dataclasses.replace(state, tasks=tasks, opponents=opponents)

    def iterate(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """One rollout and what is learnt from it."""
        state, trajectory, totals = self.rollout(state)
        return self.learning.update(state, trajectory, totals)

    def repeat(
        self, state: TrainState, interval: Interval, iterations: Array
    ) -> tuple[TrainState, Interval, Array]:
        """Up to `iterations` (int32[], traced) times `iterate`; `state` is donated by callers.

        Unless the configuration skips such updates, the loop ends before an iteration in which a NaN or an
        infinity appeared: the state returned is the one that led to it.

        Returns:
          (state, interval, failed): `failed` is bool[], True if the loop ended early.
        """
        start = _Repeated(jnp.zeros((), jnp.int32), state, interval, jnp.zeros((), bool))
        end = jax.lax.while_loop(lambda loop: _has_more(loop, iterations), self._iteration_of, start)
        return end.state, end.interval, end.failed

    def repeat_together(
        self, states: TrainState, intervals: Interval, iterations: Array
    ) -> tuple[TrainState, Interval, Array]:
        """`repeat` for members of a population, leaves [M, ...], until none has anything left to do.

        No large memory is copied. A loop of each member under `vmap` would select over everything that it
        carries in every turn. Here members that are done keep what they have, except for rows of large
        memories beyond the cursor, which count no more than a failed iteration's: the next one writes the
        same rows again.
        """

        def turn(loop: _Repeated, wanted: Array) -> _Repeated:
            return keep_before_if(~_has_more(loop, wanted), loop, self._iteration_of(loop))

        count = len(iterations)
        start = _Repeated(jnp.zeros(count, jnp.int32), states, intervals, jnp.zeros(count, bool))
        end = jax.lax.while_loop(
            lambda loop: _has_more(loop, iterations).any(),
            lambda loop: jax.vmap(turn)(loop, iterations),
            start,
        )
        return end.state, end.interval, end.failed

    def _iteration_of(self, loop: _Repeated) -> _Repeated:
        # Here for both: XLA compiles the loops of a key derived twice, twice.
        keys = iteration_keys(loop.state.key, loop.state.iteration)
        state, trajectory, totals = self.rollout(loop.state, keys)
        state, interval, failed = self.learning.learn(
            loop.state, state, loop.interval, trajectory, totals, keys
        )
        return _Repeated(made=loop.made + 1, state=state, interval=interval, failed=failed)

    def rollout(
        self, state: TrainState, keys: tuple[Array, Array] | None = None
    ) -> tuple[TrainState, Trajectory | None, EpisodeTotals | None]:
        """Steps the environments; `state.iteration` selects the keys but is not advanced.

        `keys` are `iteration_keys` of the state; None derives them here. Trajectory and totals are None if
        nothing is collected.
        """
        if self.collector is None:
            return state, None, None
        with tracing.phase("rollout"):
            key, _ = keys or iteration_keys(state.key, state.iteration)
            acting = self.learning.algorithm.acting(state.learner)
            keys_B = self._environment_keys(key)
            collect, start = self._with_opponents(self.collector, state, acting, keys_B)
            collector, trajectory, totals = collect.collect(start, acting, keys_B, state.tasks)
        return dataclasses.replace(state, collector=collector), trajectory, totals

    def refresh(self, state: TrainState) -> TrainState:
        """Lets the task sampler choose levels by its own rollouts; the iteration is not advanced."""
        collect = self.collector
        tasks = self.learning.tasks
        assert collect is not None
        assert tasks is not None
        acting = self.learning.algorithm.acting(state.learner)
        # Levels are tasks, which only copies of one environment have.
        assert isinstance(collect.env, VectorEnv)
        reports = collect.reports
        player = EpisodePlayer(collect.agent, VectorEnv(collect.env.env), reports)

        def play_levels(task_E: PyTree, keys_E: Array, quota_E: Array, count: int) -> LevelResults:
            found = player.play(acting, keys_E, quota_E, count, True, task_E)
            said = reports.final_values(
                found.tallies, found.episode_return, found.length, found.played & found.finished
            )
            return LevelResults(success=said[SUCCESS].value, length=found.length)

        key = jax.random.fold_in(iteration_keys(state.key, state.iteration)[0], _REFRESH)
        axis = self.learning.axis
        return dataclasses.replace(state, tasks=tasks.refresh(state.tasks, play_levels, key, axis))

    def _with_opponents(
        self, collect: DeviceCollector, state: TrainState, acting: Acting, keys_B: Array
    ) -> tuple[DeviceCollector, CollectorState | None]:
        """The collector with this iteration's opponents, and where it begins; as they are without self-play.

        Environments whose opponent changed restart, and so does the policy's carry there: a game counts only
        for an opponent that played all of it.
        """
        others = self.learning.opponents
        if others is None:
            return collect, state.collector
        assert state.collector is not None
        fresh = collect.init(jax.vmap(lambda key: jax.random.fold_in(key, _SWAP))(keys_B))
        swapped = others.swaps(state.opponents, len(keys_B))
        start: CollectorState = select_rows(swapped, fresh, state.collector)
        start = dataclasses.replace(start, env_state=others.matches.clear_results(start.env_state))
        return dataclasses.replace(collect, env=others.against(state.opponents, acting)), start

    def _environment_keys(self, key: Array) -> Array:
        n = self.learning.config.rows_per_device
        return environment_keys(key, self.learning.axis.index() * n + jnp.arange(n))


def _has_more(loop: _Repeated, iterations: Array) -> Array:
    return (loop.made < iterations) & ~loop.failed
