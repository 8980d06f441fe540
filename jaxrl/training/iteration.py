"""One iteration as pure functions: rollout, advantages, updates. No devices, no files, no clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp

from envs.base import JaxEnv
from envs.vector import VectorEnv
from jaxrl.algorithms import optimizer
from jaxrl.algorithms.advantage import discounted_returns, explained_variance, gae
from jaxrl.algorithms.ppo.update import Updater, layer_norms
from jaxrl.config import Config
from jaxrl.metrics import tracing
from jaxrl.networks import Policy, check_platform, normalizer
from jaxrl.rollout import device
from jaxrl.rollout.device import EpisodeTotals
from jaxrl.types import Array, Axis, EpisodeStats, Hyperparams, PyTree, TrainState, Trajectory

# What `Program.iterate` reports, named here so that the loop over iterations is traced once and not twice.
METRICS = (
    "episode/count",
    "episode/length",
    "episode/return",
    "grad/norm",
    "loss/entropy",
    "loss/policy",
    "loss/value",
    "ppo/approx_kl",
    "ppo/clip_fraction",
    "ppo/explained_variance",
    "ppo/learning_rate",
    "ppo/skipped",
    "ppo/updates",
)
# A NaN or an infinity anywhere in an iteration, or a gradient too large for float32, reaches one of these:
# all are sums over the global batch.
_TELLTALES = ("grad/norm", "loss/entropy", "loss/policy", "loss/value")


def hyperparams_of(config: Config) -> Hyperparams:
    """The numeric hyperparameters as float32 scalars."""
    ppo = config.ppo
    kl = jnp.inf if ppo.target_kl is None else ppo.target_kl
    values = {name: getattr(ppo, name) for name in Hyperparams.__dataclass_fields__ if name != "target_kl"}
    return Hyperparams(**jax.tree.map(jnp.float32, values), target_kl=jnp.float32(kl))


def no_metrics(layers: Sequence[str] = ()) -> dict[str, Array]:
    """The sums of `Program.repeat` over no iterations; `layers`: further metrics, of the network's layers."""
    zero = jnp.zeros((), jnp.int32)
    names = (*METRICS, *layers)
    return dict.fromkeys(names, jnp.zeros((), jnp.float32)) | {"iterations": zero, "ppo/updates": zero}


@dataclass(frozen=True)
class Learning:
    """What one device does with trajectories, wherever they are from; `axis` says how it sums with others.

    Every method is pure and can be jitted, sharded or vmapped (over seeds or hyperparameters).
    """

    config: Config
    policy: Policy
    axis: Axis

    def __post_init__(self) -> None:
        check_platform(self.config.network, self.axis.platform)

    def first_rows(self, key: Array) -> dict[str, PyTree]:
        """The fields of `TrainState` that belong to the environments, before the first iteration."""
        raise NotImplementedError

    def example(self, start: dict[str, PyTree]) -> PyTree:
        """One observation; only shapes and dtypes count."""
        return jax.tree.map(lambda x: x[0], start["obs"])

    def no_metrics(self) -> dict[str, Array]:
        """The sums of `repeat` over no iterations."""
        layers = self.config.log.layers
        params = jax.eval_shape(self.policy.init, jax.random.key(0)) if layers else {}
        return no_metrics(jax.eval_shape(layer_norms, params))

    def init(self, key: Array, hyperparams: Hyperparams) -> TrainState:
        """The state before the first iteration; `key` is the run's one source of randomness."""
        params_key, reset_key, run_key = jax.random.split(key, 3)
        n = self.config.envs_per_device
        params = self.policy.init(params_key)
        flat, _ = jax.flatten_util.ravel_pytree(params)
        start = self.first_rows(reset_key)
        normalized = self.config.normalize
        zeros = jnp.zeros(n, jnp.float32)
        return TrainState(
            **start,
            params=params,
            opt_state=optimizer.optimizer(hyperparams, 0.0).init(flat),
            obs_stats=normalizer.init(self.example(start)) if normalized.observations else None,
            reward_stats=normalizer.init(zeros[0]) if normalized.rewards else None,
            discounted_return=zeros,
            hyperparams=hyperparams,
            key=run_key,
            iteration=jnp.zeros((), jnp.int32),
            updates=jnp.zeros((), jnp.int32),
        )

    def update(
        self, state: TrainState, trajectory: Trajectory, totals: EpisodeTotals
    ) -> tuple[TrainState, dict[str, Array]]:
        """Advantages and all gradient steps over one trajectory; advances the iteration."""
        before = state
        with tracing.phase("advantage"):
            state, arguments, explained = self.prepare(state, trajectory)
        with tracing.phase("update"):
            updater = Updater(self.config, self.policy, self.axis)
            params, opt_state, updates, metrics = updater(*arguments)
            if state.obs_stats is not None:
                stats = normalizer.update(state.obs_stats, trajectory.obs, trajectory.valid, self.axis.psum)
                state = dataclasses.replace(state, obs_stats=stats)
        metrics |= {
            "ppo/explained_variance": explained,
            "ppo/updates": updates,
            "episode/count": totals.count,
            "episode/return": totals.episode_return,
            "episode/length": totals.length,
        }
        if self.config.nonfinite == "skip":
            state = _without_nonfinite(before, state)
        state = dataclasses.replace(
            state, params=params, opt_state=opt_state, updates=updates, iteration=state.iteration + 1
        )
        return state, metrics

    def prepare(self, state: TrainState, trajectory: Trajectory) -> tuple[TrainState, tuple[Any, ...], Array]:
        """Returns (state with new reward statistics, the arguments of `Updater`, explained variance)."""
        state, reward_TB = self._scaled_rewards(state, trajectory)
        advantage_TB, target_TB = gae(
            reward_TB,
            trajectory.value,
            trajectory.last_value,
            trajectory.terminated,
            trajectory.truncated,
            trajectory.bootstrap_value,
            state.hyperparams.gamma,
            state.hyperparams.gae_lambda,
        )
        residual_TB = target_TB - trajectory.value
        mean, variance = self._global_moments((advantage_TB, target_TB, residual_TB), trajectory.valid)
        if self.config.ppo.normalize_advantages:
            advantage_TB = (advantage_TB - mean[0]) / (jnp.sqrt(variance[0]) + 1e-8)
        # The statistics that the rollout saw hold through all epochs; only then do they learn.
        seen = normalizer.normalize(state.obs_stats, trajectory.obs, self.config.normalize.clip_observations)
        _, shuffle_key = self._keys_of_iteration(state)
        arguments = (
            state.params,
            state.opt_state,
            state.updates,
            state.hyperparams,
            dataclasses.replace(trajectory, obs=seen),
            advantage_TB,
            target_TB,
            shuffle_key,
        )
        return state, arguments, explained_variance(variance[1], variance[2])

    def _keys_of_iteration(self, state: TrainState) -> tuple[Array, Array]:
        """(rollout, shuffle): derived from the base key and the counter, so a resume continues them."""
        rollout_key, shuffle_key = jax.random.split(jax.random.fold_in(state.key, state.iteration))
        return rollout_key, shuffle_key

    def _keys_of_environments(self, key: Array) -> Array:
        """One key per environment from its GLOBAL index: the same whatever the number of devices."""
        n = self.config.envs_per_device
        index = self.axis.index() * n + jnp.arange(n)
        return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)

    def _scaled_rewards(self, state: TrainState, trajectory: Trajectory) -> tuple[TrainState, Array]:
        """Rewards over the standard deviation of the discounted return, then clipped."""
        clip = self.config.normalize.clip_rewards
        if state.reward_stats is None:
            reward = trajectory.reward
            return state, jnp.clip(reward, -clip, clip) if clip else reward
        returns_TB, last_B = discounted_returns(
            trajectory.reward,
            trajectory.terminated | trajectory.truncated,
            state.discounted_return,
            state.hyperparams.gamma,
        )
        stats = normalizer.update(state.reward_stats, returns_TB, trajectory.valid, self.axis.psum)
        state = dataclasses.replace(state, reward_stats=stats, discounted_return=last_B)
        return state, normalizer.scale_rewards(stats, trajectory.reward, clip)

    def _global_moments(
        self, arrays: tuple[Array, ...], valid_TB: Array | None
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Means and variances of arrays [T, B] over the valid steps of ALL devices, in two passes."""
        valid_TB = jnp.ones(arrays[0].shape, bool) if valid_TB is None else valid_TB

        def total(x_TB: Array) -> Array:
            return jnp.where(valid_TB, x_TB, 0.0).sum()

        count, sums = self.axis.psum((valid_TB.sum(dtype=jnp.float32), [total(x) for x in arrays]))
        means = [x / count for x in sums]
        squares = [total(jnp.square(x - mean)) for x, mean in zip(arrays, means, strict=True)]
        return tuple(means), tuple(x / count for x in self.axis.psum(squares))

    def _sum_up(
        self, state: TrainState, sums: dict[str, Array], next_state: TrainState, metrics: dict[str, Array]
    ) -> tuple[TrainState, dict[str, Array], Array]:
        """(state, sums, failed) after an iteration; those before it where it must not count."""
        next_sums = jax.tree.map(jnp.add, sums, metrics | {"iterations": jnp.ones((), jnp.int32)})
        next_sums["ppo/updates"] = next_state.updates
        if self.config.nonfinite == "skip":
            return next_state, next_sums, jnp.zeros((), bool)
        failed = ~_finite(next_state, metrics)
        keep = lambda old, new: jnp.where(failed, old, new)  # noqa: E731
        next_state, next_sums = jax.tree.map(keep, (state, sums), (next_state, next_sums))
        return next_state, next_sums, failed


@dataclass(frozen=True)
class Program(Learning):
    """The training program of one device that steps its own environments."""

    env: VectorEnv

    @classmethod
    def build(cls, config: Config, env: JaxEnv, policy: Policy, axis: Axis) -> Program:
        return cls(config, policy, axis, VectorEnv(env, stagger=config.env.stagger))

    def first_rows(self, key: Array) -> dict[str, PyTree]:
        """Environments in their first episode."""
        n = self.config.envs_per_device
        env_state, obs = self.env.reset(self._keys_of_environments(key))
        zeros = jnp.zeros(n, jnp.float32)
        return {
            "env_state": env_state,
            "obs": obs,
            "reset": jnp.ones(n, bool),
            "carry": self.policy.initial_carry(n),
            "episode": EpisodeStats(zeros, zeros.astype(jnp.int32), jnp.full(n, self.env.staggered)),
        }

    def iterate(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        """One rollout and its updates; returns the metrics of the iteration as float32 scalars.

        `episode/*` are sums over the episodes that ended, `ppo/updates` counts gradient steps since the
        start, the rest are averages over the updates.
        """
        state, trajectory, totals = self.rollout(state)
        return self.update(state, trajectory, totals)

    def repeat(
        self, state: TrainState, sums: dict[str, Array], iterations: Array
    ) -> tuple[TrainState, dict[str, Array], Array]:
        """Up to `iterations` (a traced count) times `iterate`.

        Unless the configuration skips such updates, the loop ends before an iteration in which a NaN or an
        infinity appeared: the state returned is the one that led to it.

        Args:
          state: donated by callers.
          sums: `no_metrics()`, or what an earlier call returned, to go on adding.
          iterations: int32[].

        Returns:
          (state, sums, failed): metrics summed over iterations (`ppo/updates` is the last), how many
          iterations that were, and bool[], whether the loop ended early.
        """

        def unfinished(loop: tuple[Array, TrainState, PyTree, Array]) -> Array:
            made, _, _, failed = loop
            return (made < iterations) & ~failed

        def body(loop: tuple[Array, TrainState, PyTree, Array]) -> tuple[Array, TrainState, PyTree, Array]:
            made, state, sums, _ = loop
            return made + 1, *self._sum_up(state, sums, *self.iterate(state))

        start = (jnp.zeros((), jnp.int32), state, sums, jnp.zeros((), bool))
        _, state, sums, failed = jax.lax.while_loop(unfinished, body, start)
        return state, sums, failed

    def rollout(self, state: TrainState) -> tuple[TrainState, Trajectory, EpisodeTotals]:
        """Steps the environments; `state.iteration` selects the keys but is not advanced."""
        config = self.config
        with tracing.phase("rollout"):
            key, _ = self._keys_of_iteration(state)
            state, trajectory, totals = device.rollout(
                self.policy,
                self.env,
                state,
                self._keys_of_environments(key),
                config.ppo.rollout_length,
                config.sequence_length,
                config.normalize.clip_observations,
            )
            return state, trajectory, self.axis.psum(totals)


def _finite(state: TrainState, metrics: dict[str, Array]) -> Array:
    """bool[], equal on all devices: no NaN and no infinity in the iteration that led to `state`."""
    statistics = jax.tree.leaves((state.obs_stats, state.reward_stats))
    total = sum(metrics[name] for name in _TELLTALES) + sum(jnp.sum(x) for x in statistics)
    return jnp.isfinite(total)


def _without_nonfinite(before: TrainState, after: TrainState) -> TrainState:
    """`after` with the statistics of `before` where new ones are not finite, and no such memory."""

    def sound(old: PyTree, new: PyTree) -> PyTree:
        finite = jnp.isfinite(sum(jnp.sum(x) for x in jax.tree.leaves(new)))
        return jax.tree.map(lambda x, y: jnp.where(finite, y, x), old, new)

    forget = lambda x: jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x))  # noqa: E731
    return dataclasses.replace(
        after,
        obs_stats=sound(before.obs_stats, after.obs_stats),
        reward_stats=sound(before.reward_stats, after.reward_stats),
        discounted_return=forget(after.discounted_return),
        carry=jax.tree.map(forget, after.carry),
    )
