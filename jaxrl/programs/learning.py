"""One iteration's learning as pure functions, on one device, wherever the trajectory comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms import Algorithm, Learned
from jaxrl.algorithms.optimizer import learning_precision
from jaxrl.config import Config
from jaxrl.experience.collector import declared_metrics, episode_metrics, report_metric
from jaxrl.experience.memory import Memory
from jaxrl.experience.opponents import Opponents
from jaxrl.experience.statistics import SUCCESS, EpisodeReports, over_devices
from jaxrl.experience.tasks import TaskSampler, require_signals
from jaxrl.metrics.reduction import Interval, Metric, Metrics
from jaxrl.parallel.bulk import keep_before_if
from jaxrl.types import (
    Array,
    Axis,
    CollectorState,
    EpisodeTotals,
    LearnerState,
    PyTree,
    TrainState,
    Trajectory,
)

# Keeps the keys for sampling a memory apart from the keys of learning.
_DRAW = 0x44524157
# For sampling opponents.
_OPPONENTS = 0x4F505053
# A display has no room for more.
_MOST_REPORTS_SHOWN = 3


@dataclass(frozen=True)
class Learning:
    """The algorithm inside a training state: keys, counters, episodes, and what is not finite.

    Every method is pure and can be jitted, sharded or vmapped (over seeds or hyperparameters).

    Attributes:
      memory: the store between collecting and learning.
      axis: how this device sums with the others.
      reports: the values reported of episodes.
      tasks: chooses the tasks of episodes, or None.
      opponents: have the other seat of a two-player game, or None.
    """

    config: Config
    algorithm: Algorithm
    memory: Memory
    axis: Axis
    reports: EpisodeReports
    tasks: TaskSampler | None = None
    opponents: Opponents | None = None

    def __post_init__(self) -> None:
        if self.tasks is not None:
            require_signals(self.tasks, self.algorithm)

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        """Names and reductions of what `update` reports."""
        episodes = declared_metrics(self.reports) if self.config.collects else {}
        tasks = {} if self.tasks is None else self.tasks.metrics
        others = {} if self.opponents is None else self.opponents.metrics
        return {**self.algorithm.metrics, **episodes, **tasks, **others}

    @property
    def highlights(self) -> tuple[tuple[str, str], ...]:
        """(metric, label) of the numbers that displays show: success, the algorithm's, the environment's."""
        labels = self.reports.labels
        success = ((f"env/{SUCCESS}", "success"),) if self.reports.knows_success else ()
        others = [label for label in labels if label != SUCCESS][:_MOST_REPORTS_SHOWN]
        tasks = () if self.tasks is None else self.tasks.highlights
        games = () if self.opponents is None else self.opponents.highlights
        shown = ((report_metric(label), label) for label in others)
        return (*success, *games, *tasks, *self.algorithm.highlights, *shown)

    def empty_interval(self) -> Interval:
        """The metrics of no iterations."""
        return Interval.empty(self.metrics)

    def init(
        self,
        params_key: Array,
        run_key: Array,
        hyperparams: PyTree,
        collector: CollectorState | None = None,
        example: Callable[[LearnerState], Trajectory] | None = None,
    ) -> TrainState:
        """The state before the first iteration.

        Args:
          run_key: the one source of randomness from there on.
          collector: where the environments are; None on the host, and if nothing is collected.
          example: a rollout of this device with that learner, for its shapes only; None if nothing is
            collected.
        """
        learner = self.algorithm.init(params_key, hyperparams)
        if self.config.follows_clock:
            learner = dataclasses.replace(learner, elapsed=jnp.zeros((), jnp.float32))
        else:
            learner = dataclasses.replace(learner, planned=jnp.float32(self.config.total_updates))
        memory = None
        if self.memory.state_type:
            memory = self.memory.init(None if example is None else jax.eval_shape(example, learner))
        return TrainState(
            learner=learner,
            collector=collector,
            key=run_key,
            iteration=jnp.zeros((), jnp.int32),
            memory=memory,
        )

    def update(
        self,
        state: TrainState,
        trajectory: Trajectory | None,
        totals: EpisodeTotals | None,
        keys: tuple[Array, Array] | None = None,
    ) -> tuple[TrainState, Metrics]:
        """Learns from one trajectory and advances the iteration.

        Args:
          trajectory: of this device's environments; None if nothing is collected.
          totals: over this device's episodes that ended; scalars or [1], or None as well.
          keys: `iteration_keys` of the state; None derives them here.
        """
        _, key = keys or iteration_keys(state.key, state.iteration)
        with learning_precision(self.config):
            learned, memory = self._learn_from_memory(state, self._learnable(state.tasks, trajectory), key)
        metrics = learned.metrics
        if totals is not None:
            metrics |= episode_metrics(over_devices(self.axis, totals))
        collector = state.collector
        tasks, told = self._update_tasks(state.tasks, trajectory, learned)
        opponents, results = self._update_opponents(state, learned.learner, key)
        if self.config.nonfinite == "skip" and collector is not None:
            collector = dataclasses.replace(collector, carry=_without_nonfinite(collector.carry))
        state = dataclasses.replace(
            state,
            learner=learned.learner,
            collector=collector,
            memory=memory,
            tasks=tasks,
            opponents=opponents,
            iteration=state.iteration + 1,
        )
        return state, metrics | told | results

    def _learnable(self, tasks: PyTree, trajectory: Trajectory | None) -> Trajectory | None:
        """The trajectory with the weights of the task sampler; rows that it leaves out are not valid."""
        if self.tasks is None or trajectory is None or trajectory.episodes is None:
            return trajectory
        learns = self.tasks.learns_from(trajectory.episodes.task)
        trajectory = dataclasses.replace(trajectory, weight=self.tasks.weigh(tasks, trajectory))
        if learns is None:
            return trajectory
        valid = learns if trajectory.valid is None else trajectory.valid & learns
        return dataclasses.replace(trajectory, valid=valid)

    def _update_tasks(
        self, tasks: PyTree, trajectory: Trajectory | None, learned: Learned
    ) -> tuple[PyTree, Metrics]:
        """(the state of the task sampler after a rollout and what was learnt from it, its metrics)."""
        if self.tasks is None:
            return None, {}
        assert trajectory is not None
        assert trajectory.episodes is not None
        signals = {name: learned.signals[name] for name in self.tasks.signals}
        tasks = self.tasks.update(tasks, trajectory.episodes, signals, self.axis)
        return tasks, self.tasks.report(tasks, trajectory.episodes, self.axis)

    def _update_opponents(
        self, state: TrainState, learner: LearnerState, key: Array
    ) -> tuple[PyTree, Metrics]:
        """(the state of the opponents after a rollout and what was learnt from it, its metrics)."""
        if self.opponents is None:
            return None, {}
        assert state.collector is not None
        now = self.algorithm.acting(learner)
        results_B = state.collector.env_state.results
        return self.opponents.update(state.opponents, results_B, now, jax.random.fold_in(key, _OPPONENTS))

    def _learn_from_memory(
        self, state: TrainState, trajectory: Trajectory | None, key: Array
    ) -> tuple[Learned, PyTree]:
        """(the result of learning from all draws of an iteration, the memory after them)."""
        memory = state.memory if trajectory is None else self.memory.add(state.memory, trajectory)
        draws = self.algorithm.draws_per_iteration
        if draws == 1:
            return self._learn_once(state.learner, memory, trajectory, key)

        def draw(loop: tuple[Any, PyTree, Metrics], key: Array) -> tuple[tuple[Any, PyTree, Metrics], PyTree]:
            learner, memory, so_far = loop
            learned, memory = self._learn_once(learner, memory, trajectory, key)
            merged = {name: so_far[name].merge(x) for name, x in learned.metrics.items()}
            return (learned.learner, memory, merged), learned.signals

        empty = {name: kind.empty() for name, kind in self.algorithm.metrics.items()}
        keys = jax.random.split(key, draws)
        (learner, memory, metrics), signals = jax.lax.scan(draw, (state.learner, memory, empty), keys)
        last = jax.tree.map(lambda x: x[-1], signals)
        return Learned(learner=learner, feedback=None, metrics=metrics, signals=last), memory

    def _learn_once(
        self, learner: LearnerState, memory: PyTree, trajectory: Trajectory | None, key: Array
    ) -> tuple[Learned, PyTree]:
        learned = self.algorithm.learn(learner, self._draw(memory, trajectory, key), key)
        return learned, self.memory.feedback(memory, learned.feedback)

    def _draw(self, memory: PyTree, trajectory: Trajectory | None, key: Array) -> Any:
        # The key is for memories that hold something; the latest rollout needs no sampling.
        return self.memory.draw(memory, trajectory, jax.random.fold_in(key, _DRAW))

    def inspect(self, state: TrainState, trajectory: Trajectory | None) -> dict[str, Array]:
        """`Algorithm.inspect` of everything that `update` would learn; [draws * epochs, minibatches]."""
        _, key = iteration_keys(state.key, state.iteration)
        trajectory = self._learnable(state.tasks, trajectory)
        memory = state.memory if trajectory is None else self.memory.add(state.memory, trajectory)
        draws = self.algorithm.draws_per_iteration
        if draws == 1:
            return self.algorithm.inspect(state.learner, self._draw(memory, trajectory, key), key)

        def draw(loop: tuple[LearnerState, PyTree], key: Array) -> tuple[Any, dict[str, Array]]:
            learner, memory = loop
            found = self.algorithm.inspect(learner, self._draw(memory, trajectory, key), key)
            learned, memory = self._learn_once(learner, memory, trajectory, key)
            return (learned.learner, memory), found

        _, found = jax.lax.scan(draw, (state.learner, memory), jax.random.split(key, draws))
        return {name: x.reshape(-1, *x.shape[2:]) for name, x in found.items()}

    def learn(
        self,
        before: TrainState,
        state: TrainState,
        interval: Interval,
        trajectory: Trajectory | None,
        totals: EpisodeTotals | None,
        keys: tuple[Array, Array] | None = None,
    ) -> tuple[TrainState, Interval, Array]:
        """`update`, unless a NaN or an infinity comes up in it and the configuration does not skip those.

        Args:
          before: the state before the rollout; returned if the iteration must not count.
          state: the state after the rollout.

        Returns:
          (state, interval, failed): `failed` is bool[], True if the iteration was not finite.
        """
        after, metrics = self.update(state, trajectory, totals, keys)
        added = interval.add(metrics)
        if self.config.nonfinite == "skip":
            return after, added, jnp.zeros((), bool)
        failed = ~self.algorithm.is_finite(after.learner, metrics)
        if self.algorithm.keeps_learner and self.algorithm.draws_per_iteration == 1:
            before = dataclasses.replace(before, learner=after.learner)
        # A CPU compiles each kernel, and copies without one.
        branch = self.axis.platform == "cpu"
        state, interval = keep_before_if(failed, (before, interval), (after, added), branch)
        return state, interval, failed


def iteration_keys(key: Array, iteration: Array) -> tuple[Array, Array]:
    """(rollout, shuffle): derived from the run's key and the counter, so that a resume continues them."""
    rollout_key, shuffle_key = jax.random.split(jax.random.fold_in(key, iteration))
    return rollout_key, shuffle_key


def environment_keys(key: Array, index: Array) -> Array:
    """One key per environment from its GLOBAL index: the same whatever the number of devices."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)


def _without_nonfinite(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x)), tree)
