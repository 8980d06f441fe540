"""Whole iterations as pure functions, where environments are JAX code: collect, then learn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp

from envs.base import JaxEnv
from envs.vector import VectorEnv
from jaxrl import algorithms
from jaxrl.config import Config
from jaxrl.metrics import tracing
from jaxrl.metrics.reduction import Interval, Metrics
from jaxrl.networks import Policy
from jaxrl.rollout.device import DeviceCollector
from jaxrl.rollout.statistics import EpisodeReports
from jaxrl.training.learning import Learning, environment_keys, iteration_keys
from jaxrl.types import Array, Axis, EpisodeTotals, PyTree, TrainState, Trajectory


@flax.struct.dataclass
class _Loop:
    """What one iteration hands to the next.

    Attributes:
      made: int32[], iterations.
      state: after them.
      interval: the metrics so far.
      failed: bool[], whether the last was not finite; `state` is then the one before it.
    """

    made: Array
    state: TrainState
    interval: Interval
    failed: Array


@dataclass(frozen=True)
class Iteration:
    """The training program of one device that steps its own environments."""

    learning: Learning
    collector: DeviceCollector

    @classmethod
    def build(cls, config: Config, env: JaxEnv, policy: Policy, axis: Axis) -> Iteration:
        reports = EpisodeReports.of(env.spec, config.env.success)
        collector = DeviceCollector(
            policy=policy,
            env=VectorEnv(env, stagger=config.env.stagger),
            length=config.rollout_length,
            chunk=config.sequence_length,
            few_kernels=axis.pays_for_launches,
            unroll=axis.unroll,
            reports=reports,
        )
        return cls(Learning(config, algorithms.build(config, policy, axis), axis, reports), collector)

    def init(self, key: Array, hyperparams: PyTree) -> TrainState:
        """The state before the first iteration; `key` is the run's one source of randomness."""
        params_key, reset_key, run_key = jax.random.split(key, 3)
        collector = self.collector.init(self._environment_keys(reset_key))
        return self.learning.init(params_key, run_key, hyperparams, collector)

    def iterate(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """One rollout and what is learnt from it."""
        state, trajectory, totals = self.rollout(state)
        return self.learning.update(state, trajectory, totals)

    def repeat(
        self, state: TrainState, interval: Interval, iterations: Array
    ) -> tuple[TrainState, Interval, Array]:
        """Up to `iterations` (a traced count) times `iterate`.

        Unless the configuration skips such updates, the loop ends before an iteration in which a NaN or an
        infinity appeared: the state returned is the one that led to it.

        Args:
          state: donated by callers.
          interval: the metrics so far.
          iterations: int32[].

        Returns:
          (state, interval, failed): bool[], whether the loop ended early.
        """

        def unfinished(loop: _Loop) -> Array:
            return (loop.made < iterations) & ~loop.failed

        def body(loop: _Loop) -> _Loop:
            state, trajectory, totals = self.rollout(loop.state)
            state, interval, failed = self.learning.learn(
                loop.state, state, loop.interval, trajectory, totals
            )
            return _Loop(made=loop.made + 1, state=state, interval=interval, failed=failed)

        start = _Loop(jnp.zeros((), jnp.int32), state, interval, jnp.zeros((), bool))
        end = jax.lax.while_loop(unfinished, body, start)
        return end.state, end.interval, end.failed

    def rollout(self, state: TrainState) -> tuple[TrainState, Trajectory, EpisodeTotals]:
        """Steps the environments; `state.iteration` selects the keys but is not advanced."""
        with tracing.phase("rollout"):
            key, _ = iteration_keys(state.key, state.iteration)
            collector, trajectory, totals = self.collector.collect(
                state.collector, state.learner.policy, self._environment_keys(key)
            )
        return dataclasses.replace(state, collector=collector), trajectory, totals

    def _environment_keys(self, key: Array) -> Array:
        n = self.learning.config.envs_per_device
        return environment_keys(key, self.learning.axis.index() * n + jnp.arange(n))
