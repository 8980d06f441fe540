"""PPO: advantages over a trajectory, then epochs of clipped updates (Schulman et al. 2017)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.flatten_util
import jax.numpy as jnp

from jaxrl.algorithms import optimizer
from jaxrl.algorithms.advantage import discounted_returns, explained_variance, gae
from jaxrl.algorithms.base import Algorithm
from jaxrl.algorithms.ppo.batch import Batch
from jaxrl.algorithms.ppo.proximal import decoupled
from jaxrl.algorithms.ppo.reports import Reports
from jaxrl.algorithms.ppo.state import PPOHyperparams, PPOState
from jaxrl.algorithms.ppo.update import Updater, layer_norms
from jaxrl.config import Config
from jaxrl.metrics import tracing
from jaxrl.metrics.reduction import Last, Mean, Metric, Metrics, Sum
from jaxrl.networks import Policy, check_platform, normalizer
from jaxrl.types import Array, Axis, PolicyState, PyTree, Trajectory

# Averages over the updates that were made.
_OF_UPDATES = (
    "loss/policy",
    "loss/value",
    "loss/entropy",
    "grad/norm",
    "ppo/approx_kl",
    "ppo/clip_fraction",
    "ppo/learning_rate",
)
# A NaN or an infinity anywhere in an iteration, or a gradient too large for float32, reaches one of these:
# all are sums over the global batch.
_FINITE_CHECKS = ("grad/norm", "loss/entropy", "loss/policy", "loss/value")


@dataclass(frozen=True)
class PPO(Algorithm):
    """Proximal policy optimisation for recurrent policies.

    Attributes:
      config: the resolved configuration.
      policy: what learns.
      axis: how this device sums with the others.
    """

    config: Config
    policy: Policy
    axis: Axis

    state_type: ClassVar = PPOState
    highlights: ClassVar = (
        ("loss/policy", "policy loss"),
        ("loss/value", "value loss"),
        ("loss/entropy", "entropy"),
        ("ppo/approx_kl", "approx. KL"),
        ("ppo/clip_fraction", "clip fraction"),
        ("ppo/explained_variance", "explained var."),
        ("grad/norm", "grad norm"),
        ("ppo/learning_rate", "learning rate"),
    )
    updates_metric: ClassVar = "ppo/updates"

    def __post_init__(self) -> None:
        check_platform(self.config.network, self.axis)

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        """As `Algorithm.metrics`: `ppo/updates` are gradient steps since the start of the run."""
        declared: dict[str, type[Metric]] = dict.fromkeys(_OF_UPDATES, Mean)
        declared |= {"ppo/explained_variance": Mean, self.updates_metric: Last}
        if self.config.nonfinite == "skip":
            declared["ppo/skipped"] = Sum
        if self.config.log.layers:
            params = jax.eval_shape(self.policy.init, jax.random.key(0))
            declared |= dict.fromkeys(jax.eval_shape(layer_norms, params), Mean)
        return declared

    @property
    def passes_per_step(self) -> float:
        return self.config.ppo.num_epochs

    @classmethod
    def hyperparameters(cls, config: Config) -> PPOHyperparams:
        return PPOHyperparams.of(config.ppo)

    def init(self, key: Array, hyperparams: PPOHyperparams) -> PPOState:
        policy = self.policy.initial_state(key)
        flat, _ = jax.flatten_util.ravel_pytree(policy.params)
        zeros = jnp.zeros(self.config.envs_per_device, jnp.float32)
        return PPOState(
            policy=policy,
            hyperparams=hyperparams,
            updates=jnp.zeros((), jnp.int32),
            opt_state=optimizer.optimizer(hyperparams.max_grad_norm, 0.0).init(flat),
            reward_stats=normalizer.init(zeros[0]) if self.config.normalize.rewards else None,
            discounted_return=zeros,
        )

    def update(self, learner: PPOState, trajectory: Trajectory, key: Array) -> tuple[PPOState, Metrics]:
        before = learner
        with tracing.phase("advantage"):
            learner, batch, explained = self.prepare(learner, trajectory)
        with tracing.phase("update"):
            learner, gradient, reports = self._updated(learner, trajectory, batch, key)
            learner = self._with_observations(learner, trajectory)
        metrics: Metrics = self._averages(reports) | {"ppo/explained_variance": Mean.of(explained)}
        if self.config.log.layers:
            made = reports["made"].any().astype(jnp.float32)
            metrics |= {name: Mean(x * made, made) for name, x in layer_norms(gradient).items()}
        metrics[self.updates_metric] = Last(learner.updates)
        if self.config.nonfinite == "skip":
            metrics["ppo/skipped"] = Sum(reports["skipped"].sum(dtype=jnp.float32))
            learner = _with_finite_statistics(before, learner)
        return learner, metrics

    def restart_episodes(self, learner: PPOState) -> PPOState:
        return dataclasses.replace(learner, discounted_return=jnp.zeros_like(learner.discounted_return))

    def is_finite(self, learner: PPOState, metrics: Metrics) -> Array:
        statistics = jax.tree.leaves((learner.policy.obs_stats, learner.reward_stats))
        # The sums behind the averages: where no update was made there is no average.
        sums = jax.tree.leaves([metrics[name] for name in _FINITE_CHECKS])
        # One reduction: XLA would repeat a chain of sums in every array that the answer selects.
        return jnp.isfinite(jnp.stack([*sums, *map(jnp.sum, statistics)])).all()

    def inspect(self, learner: PPOState, trajectory: Trajectory, key: Array) -> Reports:
        learner, batch, _ = self.prepare(learner, trajectory)
        updater = Updater(self.config, self.policy, self.axis, watch=True)
        return updater(learner, batch, key)[2]

    def prepare(self, learner: PPOState, trajectory: Trajectory) -> tuple[PPOState, Batch, Array]:
        """Returns (learner with new reward statistics, what `Updater` takes, explained variance)."""
        learner, reward_TB = self._scaled_rewards(learner, trajectory)
        advantage_TB, target_TB = gae(
            reward_TB=reward_TB,
            value_TB=trajectory.value,
            last_value_B=trajectory.last_value,
            terminated_TB=trajectory.terminated,
            truncated_TB=trajectory.truncated,
            bootstrap_value_TB=trajectory.bootstrap_value,
            gamma=learner.hyperparams.gamma,
            gae_lambda=learner.hyperparams.gae_lambda,
            unroll=self.axis.unroll,
        )
        residual_TB = target_TB - trajectory.value
        mean, variance = self._global_moments((advantage_TB, target_TB, residual_TB), trajectory.valid)
        if self.config.ppo.normalize_advantages:
            advantage_TB = (advantage_TB - mean[0]) / (jnp.sqrt(variance[0]) + 1e-8)
        # The statistics that the rollout saw hold through all epochs; only then do they learn.
        acting = _acting(learner, trajectory)
        batch = Batch.of(trajectory, self.policy.normalize(acting, trajectory.obs), advantage_TB, target_TB)
        if trajectory.behaviour is not None:
            batch = decoupled(self.config, self.policy, self.axis, acting.params, batch)
        return learner, batch, explained_variance(variance[1], variance[2])

    def _updated(
        self, learner: PPOState, trajectory: Trajectory, batch: Batch, key: Array
    ) -> tuple[PPOState, PyTree, Reports]:
        """What `Updater` returns; no update is made from observations that no statistics normalised.

        Once there are statistics the network sees other inputs, and what it learnt from these is in its way.
        """
        updater = Updater(self.config, self.policy, self.axis)
        stats = _acting(learner, trajectory).obs_stats
        if stats is None:
            return updater(learner, batch, key)

        def run() -> tuple[PPOState, PyTree, Reports]:
            return updater(learner, batch, key)

        def skip() -> tuple[PPOState, PyTree, Reports]:
            _, *rest = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(run))
            return learner, *rest

        return jax.lax.cond(stats.count > 0, run, skip)

    def _with_observations(self, learner: PPOState, trajectory: Trajectory) -> PPOState:
        """With the trajectory's observations in the statistics, where observations are normalised."""
        stats = learner.policy.obs_stats
        if stats is None:
            return learner
        stats = normalizer.update(stats, trajectory.obs, trajectory.valid, self.axis.psum)
        return dataclasses.replace(learner, policy=dataclasses.replace(learner.policy, obs_stats=stats))

    def _averages(self, reports: Reports) -> dict[str, Metric]:
        """Over the updates that were made; an iteration counts by how many of its updates these were."""
        made = reports["made"]
        total = jnp.maximum(made.sum(), 1).astype(jnp.float32)
        share = made.sum().astype(jnp.float32) / made.size

        def average(x: Array) -> Array:
            return jnp.where(made, x, 0.0).sum() / total

        return {name: Mean(average(reports[name]) * share, share) for name in _OF_UPDATES}

    def _scaled_rewards(self, learner: PPOState, trajectory: Trajectory) -> tuple[PPOState, Array]:
        """Rewards over the standard deviation of the discounted return, then clipped."""
        clip = self.config.normalize.clip_rewards
        if learner.reward_stats is None:
            reward = trajectory.reward
            return learner, jnp.clip(reward, -clip, clip) if clip else reward
        returns_TB, last_B = discounted_returns(
            trajectory.reward,
            trajectory.terminated | trajectory.truncated,
            learner.discounted_return,
            learner.hyperparams.gamma,
            self.axis.unroll,
        )
        stats = normalizer.update(learner.reward_stats, returns_TB, trajectory.valid, self.axis.psum)
        learner = dataclasses.replace(learner, reward_stats=stats, discounted_return=last_B)
        return learner, normalizer.scale_rewards(stats, trajectory.reward, clip)

    def _global_moments(
        self, arrays: tuple[Array, ...], valid_TB: Array | None
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Means and variances of arrays [T, B] over the valid steps of ALL devices, in two passes."""
        valid_TB = jnp.ones(arrays[0].shape, bool) if valid_TB is None else valid_TB

        def total(x_TB: Array) -> Array:
            return jnp.where(valid_TB, x_TB, 0.0).sum()

        count, sums = self.axis.psum((valid_TB.sum(dtype=jnp.float32), [total(x) for x in arrays]))
        count = jnp.maximum(count, 1.0)
        means = [x / count for x in sums]
        squares = [total(jnp.square(x - mean)) for x, mean in zip(arrays, means, strict=True)]
        return tuple(means), tuple(x / count for x in self.axis.psum(squares))


def _acting(learner: PPOState, trajectory: Trajectory) -> PolicyState:
    """The policy with the statistics that normalised the trajectory's observations."""
    if trajectory.behaviour is None:
        return learner.policy
    return dataclasses.replace(learner.policy, obs_stats=trajectory.behaviour.obs_stats)


def _with_finite_statistics(before: PPOState, after: PPOState) -> PPOState:
    """`after` with the statistics of `before` where new ones are not finite, and no such memory."""

    def sound(old: PyTree, new: PyTree) -> PyTree:
        finite = jnp.isfinite(sum(jnp.sum(x) for x in jax.tree.leaves(new)))
        return jax.tree.map(lambda x, y: jnp.where(finite, y, x), old, new)

    obs_stats = sound(before.policy.obs_stats, after.policy.obs_stats)
    discounted = after.discounted_return
    return dataclasses.replace(
        after,
        policy=dataclasses.replace(after.policy, obs_stats=obs_stats),
        reward_stats=sound(before.reward_stats, after.reward_stats),
        discounted_return=jnp.where(jnp.isfinite(discounted), discounted, jnp.zeros_like(discounted)),
    )
