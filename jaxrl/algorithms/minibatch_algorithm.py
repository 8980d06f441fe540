"""The common part of algorithms that learn from each rollout by epochs of minibatches."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import flax.struct
import jax
import jax.flatten_util
import jax.numpy as jnp

from jaxrl.algorithms import optimizer
from jaxrl.algorithms.advantage import explained_variance, gae, global_moments, standardize
from jaxrl.algorithms.agent import Agent, empty_statistics
from jaxrl.algorithms.base import Algorithm, Learned
from jaxrl.algorithms.minibatches import Minibatches, Stop
from jaxrl.algorithms.optimizer import OptimizerShards, require_fit
from jaxrl.algorithms.reports import Epochs, Reports
from jaxrl.algorithms.rollout_state import (
    RolloutState,
    scaled_rewards,
    with_finite_statistics,
    with_observations,
)
from jaxrl.algorithms.sequences import Batch
from jaxrl.config import Config, MinibatchConfig
from jaxrl.metrics import tracing
from jaxrl.metrics.reduction import Last, Mean, Metric, Metrics, Sum
from jaxrl.networks import check_platform
from jaxrl.types import Acting, Array, Axis, PyTree, Trajectory


@flax.struct.dataclass
class Prepared:
    """Everything that the updates on a trajectory start from.

    Attributes:
      learner: with new statistics of rewards.
      batch: the steps that minibatches are taken from.
      metrics: of the whole trajectory, as `MinibatchAlgorithm.own_metrics` names them.
      signals: float32[T, B] by the names in `Algorithm.signals`.
    """

    learner: Any
    batch: Batch
    metrics: Metrics
    signals: dict[str, Array] = flax.struct.field(default_factory=dict)


@dataclass(frozen=True)
class EpochsAlgorithm(Algorithm):
    """Gives the engine a loss, which it minimises by epochs of minibatches.

    Attributes:
      axis: how this device sums with the others.
      rates, padded: see `Minibatches`.
    """

    config: Config
    agent: Agent
    axis: Axis

    rates: ClassVar[tuple[tuple[str, str], ...]] = ()
    padded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_platform(self.config.network, self.axis)
        if self.config.network.frozen:
            params = jax.eval_shape(self.agent.init_params, jax.random.key(0))
            require_fit("network.frozen", self.config.network.frozen, params)

    @abc.abstractmethod
    def loss(
        self, learner: Any, params: PyTree, batch: Batch, key: Array
    ) -> tuple[Array, dict[str, Array], PyTree]:
        """The loss of a minibatch; sums over its steps that count (`Batch.total`), not averages.

        Args:
          learner: before the updates on this trajectory; its hyperparameters hold.
          batch: [L, N, ...].
          key: equal on all devices, a different one for each update.

        Returns:
          (float32[], float32[] by the names of their metrics, a tree of float32[L, N, ...] or None).
        """

    def stop(self, learner: Any) -> Stop | None:
        """The end of the updates on a trajectory, such as by KL divergence; None: there is none.

        May be overridden.
        """
        return None

    def first_state(self, key: Array, hyperparams: Any, **fields: Any) -> Any:
        """`init`, given the fields that `state_type` adds to `MinibatchState`."""
        policy = self.agent.init(key)
        flat, _ = jax.flatten_util.ravel_pytree(policy.params)
        own = OptimizerShards.of(self.section, self.axis, flat.size).empty()
        make: Callable[..., Any] = self.state_type
        return make(
            policy=policy,
            hyperparams=hyperparams,
            updates=jnp.zeros((), jnp.int32),
            opt_state=optimizer.optimizer(hyperparams.max_grad_norm, 0.0).init(own),
            **fields,
        )

    def optimizer_shards(self) -> OptimizerShards | None:
        return OptimizerShards.of_agent(self.section, self.axis, self.agent)

    def scheduled_values(self, learner: Any) -> dict[str, float]:
        rate = self.engine(learner).rate(learner, learner.hyperparams.learning_rate, learner.updates)
        return {"learning rate": float(rate), **super().scheduled_values(learner)}

    def engine(self, learner: Any, watch: bool = False) -> Minibatches:
        """The engine for this learner; see `Minibatches.watch`."""
        return Minibatches(
            config=self.config,
            agent=self.agent,
            axis=self.axis,
            loss=functools.partial(self.loss, learner),
            stop=self.stop(learner),
            rates=self.rates,
            padded=self.padded,
            watch=watch,
        )

    @property
    def section(self) -> MinibatchConfig:
        """The fields of the algorithm."""
        return self.config.learner_as(MinibatchConfig)

    def output(self, learner: Any, params: PyTree, batch: Batch) -> Any:
        """The `Output` of the agent with these parameters, on a minibatch."""
        acting = dataclasses.replace(learner.policy, params=params)
        return self.agent.apply(acting, batch.obs, batch.carry, batch.reset, batch.action_mask)


@dataclass(frozen=True)
class MinibatchAlgorithm(EpochsAlgorithm):
    """Prepares a trajectory, and gives the engine a loss.

    Rewards and observations are scaled, updates that are not finite skipped, and layers reported as every
    configuration may ask for.

    Attributes:
      own_metrics: the metrics of `prepare`, with their reductions.
    """

    state_type: ClassVar = RolloutState
    own_metrics: ClassVar[Mapping[str, type[Metric]]] = {}

    @property
    @abc.abstractmethod
    def reported(self) -> tuple[str, ...]:
        """The sums of the loss, by the names of their metrics; those called `loss/NAME` must be finite."""

    @abc.abstractmethod
    def prepare(self, learner: Any, trajectory: Trajectory) -> Prepared:
        """The inputs of updates, such as targets and advantages, from this device's trajectory."""

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        """As `Algorithm.metrics`: `NAME/updates` are gradient steps since the start of the run."""
        skipped = {f"{self.name}/skipped": Sum} if self.config.nonfinite == "skip" else {}
        return self.declared(self._of_updates, **self.own_metrics, **skipped)

    @property
    def passes_per_step(self) -> float:
        return self.section.num_epochs

    def init(self, key: Array, hyperparams: Any) -> RolloutState:
        """As `Algorithm.init`. May be overridden, by one that adds to this state."""
        scales = self.config.normalize.rewards
        return self.first_state(
            key,
            hyperparams,
            reward_stats=empty_statistics(self.agent.spec, jnp.float32(0)) if scales else None,
            discounted_return=jnp.zeros(self.config.rows_per_device, jnp.float32),
        )

    def learn(self, learner: Any, experience: Trajectory, key: Array) -> Learned:
        before = learner
        trajectory = experience
        with tracing.phase("advantage"):
            prepared = self.prepare(learner, trajectory)
        with tracing.phase("update"):
            epochs = self._update(prepared, self._rollout_policy(learner, trajectory), key)
            learner = with_observations(
                epochs.learner, self.agent.spec, trajectory.obs, trajectory.valid, self.axis
            )
        metrics: Metrics = epochs.averages(self._of_updates) | prepared.metrics
        if self.config.log.layers:
            metrics |= epochs.layer_norms()
        metrics[self.updates_metric] = Last(learner.updates)
        if self.config.nonfinite == "skip":
            metrics[f"{self.name}/skipped"] = Sum(epochs.reports["skipped"].sum(dtype=jnp.float32))
            learner = with_finite_statistics(before, learner)
        return Learned(learner, epochs.per_row, metrics, prepared.signals)

    def is_finite(self, learner: Any, metrics: Metrics) -> Array:
        # A NaN or an infinity anywhere in an iteration, or a gradient too large for float32, reaches one of
        # these: all are sums over the global batch.
        checked = ("grad/norm", *sorted(name for name in self.reported if name.startswith("loss/")))
        statistics = jax.tree.leaves((learner.policy.obs_stats, learner.reward_stats))
        # The sums behind the averages: where no update was made there is no average.
        sums = jax.tree.leaves([metrics[name] for name in checked])
        # One reduction: XLA would repeat a chain of sums in every array that the answer selects.
        return jnp.isfinite(jnp.stack([*sums, *map(jnp.sum, statistics)])).all()

    def inspect(self, learner: Any, experience: Trajectory, key: Array) -> Reports:
        prepared = self.prepare(learner, experience)
        return self.engine(prepared.learner, watch=True)(prepared.learner, prepared.batch, key).reports

    def scaled_rewards(self, learner: Any, trajectory: Trajectory) -> tuple[Any, Array]:
        """(learner with the statistics of these rewards, rewards float32[T, B] to learn from)."""
        return scaled_rewards(self.config.normalize, self.axis, self.agent.spec, learner, trajectory)

    def advantages(
        self, trajectory: Trajectory, reward_TB: Array, gamma: Array | float, gae_lambda: Array | float
    ) -> tuple[Array, Array]:
        """(advantages, value targets), float32[T, B], of an agent whose extras and bootstraps are values.

        If an episode was cut off, by a time limit or by the end of the rollout, its value stands for the
        rest; with `gae_lambda` 1 the targets are discounted rewards-to-go. See `advantage.gae`.
        """
        return gae(
            reward_TB=reward_TB,
            value_TB=trajectory.extras["value"],
            last_value_B=trajectory.last,
            terminated_TB=trajectory.terminated,
            truncated_TB=trajectory.truncated,
            bootstrap_value_TB=trajectory.bootstrap,
            gamma=gamma,
            gae_lambda=gae_lambda,
            unroll=self.axis.unroll,
        )

    def with_advantages(self, learner: Any, trajectory: Trajectory, normalize: bool) -> Prepared:
        """`prepare` of an actor-critic: its extras, `advantage` and `target` in the rows of the batch.

        `normalize` standardises advantages over the trajectories of all devices.
        """
        learner, reward_TB = self.scaled_rewards(learner, trajectory)
        value_TB = trajectory.extras["value"]
        h = learner.hyperparams
        advantage_TB, target_TB = self.advantages(trajectory, reward_TB, h.gamma, h.gae_lambda)
        residual_TB = target_TB - value_TB
        arrays = (advantage_TB, target_TB, residual_TB)
        mean, variance = global_moments(self.axis, arrays, trajectory.valid)
        if normalize:
            advantage_TB = standardize(advantage_TB, mean[0], variance[0])
        rows = {**trajectory.extras, "advantage": advantage_TB, "target": target_TB}
        batch = self.batch(learner, trajectory, rows)
        explained = Mean.of(explained_variance(variance[1], variance[2]))
        signals = {"advantage": residual_TB, "value": value_TB}
        named = [name for name in self.own_metrics if name.endswith("/explained_variance")]
        metrics: dict[str, Metric] = dict.fromkeys(named, explained)
        return Prepared(learner, batch, metrics, signals)

    def batch(self, learner: Any, trajectory: Trajectory, rows: Mapping[str, Array]) -> Batch:
        """The trajectory with float32[T, B] arrays of the algorithm's own, as the network saw it."""
        # The statistics that the rollout saw hold through all epochs; only then do they learn.
        seen = self.agent.normalize(self._rollout_policy(learner, trajectory), trajectory.obs)
        return Batch.of(trajectory, seen, rows)

    @property
    def _of_updates(self) -> tuple[str, ...]:
        """Averages over the updates that were made."""
        return (*self.reported, "grad/norm", f"{self.name}/learning_rate")

    def _rollout_policy(self, learner: Any, trajectory: Trajectory) -> Acting:
        """The parameters with the statistics that normalised the trajectory's observations."""
        policy: Acting = learner.policy
        if trajectory.behaviour is None:
            return policy
        return dataclasses.replace(policy, obs_stats=trajectory.behaviour.obs_stats)

    def _update(self, prepared: Prepared, seen_by: Acting, key: Array) -> Epochs:
        """The result of the engine; no update is made from observations that are not normalised yet.

        Once there are statistics the network sees other inputs, and what it learnt from these is in its way.
        Pictures in bytes and choices are never normalised: without other parts nothing is waited for.
        """
        learner = prepared.learner
        stats = seen_by.obs_stats

        @jax.jit  # Traced once, for its shapes and for the branch.
        def run() -> Epochs:
            return self.engine(learner)(learner, prepared.batch, key)

        if stats is None or not stats.mean:
            return run()

        # Of several tasks all that are played have rows in every rollout.
        return jax.lax.cond((stats.count > 0).any(), run, lambda: Epochs.none(run, learner))
