"""One iteration's learning as pure functions, on one device, wherever the trajectory comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl.algorithms import Algorithm
from jaxrl.config import Config
from jaxrl.metrics.reduction import Interval, Metric, Metrics
from jaxrl.rollout.base import declared_metrics, episode_metrics
from jaxrl.rollout.statistics import SUCCESS, EpisodeReports, over_devices
from jaxrl.types import Array, Axis, CollectorState, EpisodeTotals, PyTree, TrainState, Trajectory

# A display has no room for more.
_MOST_REPORTS_SHOWN = 3


@dataclass(frozen=True)
class Learning:
    """The algorithm inside a training state: keys, counters, episodes, and what is not finite.

    Every method is pure and can be jitted, sharded or vmapped (over seeds or hyperparameters).

    Attributes:
      config: the resolved configuration.
      algorithm: what learns.
      axis: how this device sums with the others.
      reports: what is reported of episodes.
    """

    config: Config
    algorithm: Algorithm
    axis: Axis
    reports: EpisodeReports

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        """Names and reductions of what `update` reports."""
        return {**self.algorithm.metrics, **declared_metrics(self.reports)}

    @property
    def highlights(self) -> tuple[tuple[str, str], ...]:
        """(metric, label) of the numbers that displays show: success, the algorithm's, the environment's."""
        labels = self.reports.labels
        success = ((f"env/{SUCCESS}", "success"),) if SUCCESS in labels else ()
        others = [label for label in labels if label != SUCCESS][:_MOST_REPORTS_SHOWN]
        return (*success, *self.algorithm.highlights, *((f"env/{label}", label) for label in others))

    def empty_interval(self) -> Interval:
        """The metrics of no iterations."""
        return Interval.empty(self.metrics)

    def init(
        self, params_key: Array, run_key: Array, hyperparams: PyTree, collector: CollectorState | None
    ) -> TrainState:
        """The state before the first iteration; `run_key` is the one source of randomness from there on."""
        return TrainState(
            learner=self.algorithm.init(params_key, hyperparams),
            collector=collector,
            key=run_key,
            iteration=jnp.zeros((), jnp.int32),
        )

    def update(
        self, state: TrainState, trajectory: Trajectory, totals: EpisodeTotals
    ) -> tuple[TrainState, Metrics]:
        """Learns from one trajectory and advances the iteration.

        Args:
          state: before it.
          trajectory: of this device's environments.
          totals: over this device's episodes that ended; scalars or [1].
        """
        _, shuffle_key = iteration_keys(state.key, state.iteration)
        learner, metrics = self.algorithm.update(state.learner, trajectory, shuffle_key)
        metrics |= episode_metrics(over_devices(self.axis, totals))
        collector = state.collector
        if self.config.nonfinite == "skip" and collector is not None:
            collector = dataclasses.replace(collector, carry=_without_nonfinite(collector.carry))
        state = dataclasses.replace(
            state, learner=learner, collector=collector, iteration=state.iteration + 1
        )
        return state, metrics

    def learn(
        self,
        before: TrainState,
        state: TrainState,
        interval: Interval,
        trajectory: Trajectory,
        totals: EpisodeTotals,
    ) -> tuple[TrainState, Interval, Array]:
        """`update`, unless a NaN or an infinity comes up in it and the configuration does not skip those.

        Args:
          before: the state before the rollout; what is returned where the iteration must not count.
          state: the state after the rollout.
          interval: the metrics so far.
          trajectory, totals: of the rollout; see `update`.

        Returns:
          (state, interval, failed): bool[], whether the iteration was not finite.
        """
        after, metrics = self.update(state, trajectory, totals)
        added = interval.add(metrics)
        if self.config.nonfinite == "skip":
            return after, added, jnp.zeros((), bool)
        failed = ~self.algorithm.is_finite(after.learner, metrics)
        keep = lambda old, new: jnp.where(failed, old, new)  # noqa: E731
        after, added = jax.tree.map(keep, (before, interval), (after, added))
        return after, added, failed


def iteration_keys(key: Array, iteration: Array) -> tuple[Array, Array]:
    """(rollout, shuffle): derived from the run's key and the counter, so that a resume continues them."""
    rollout_key, shuffle_key = jax.random.split(jax.random.fold_in(key, iteration))
    return rollout_key, shuffle_key


def environment_keys(key: Array, index: Array) -> Array:
    """One key per environment from its GLOBAL index: the same whatever the number of devices."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)


def _without_nonfinite(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x)), tree)
