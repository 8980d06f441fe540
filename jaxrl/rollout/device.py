"""Collecting on the device: JAX environments inside the compiled program (Anakin in Hessel et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp

from envs.base import TimeStep
from envs.vector import VectorEnv
from jaxrl.networks import Policy
from jaxrl.networks.distributions import draw_noise
from jaxrl.rollout.base import Collector
from jaxrl.types import (
    Array,
    CollectorState,
    EpisodeStats,
    EpisodeTotals,
    PolicyState,
    PyTree,
    Trajectory,
)


@dataclass(frozen=True)
class DeviceCollector(Collector):
    """Collects inside a compiled program; pure functions over this device's environments.

    Attributes:
      policy: acts; its parameters and statistics come with each call.
      env: the environments.
      length: T.
      chunk: L; the carry before every L-th step is kept.
    """

    policy: Policy
    env: VectorEnv
    length: int
    chunk: int

    def init(self, keys_B: Array) -> CollectorState:
        """Environments in their first episode, one key each."""
        (n,) = keys_B.shape
        env_state, obs = self.env.reset(keys_B)
        zeros = jnp.zeros(n, jnp.float32)
        return CollectorState(
            env_state=env_state,
            obs=obs,
            reset=jnp.ones(n, bool),
            carry=self.policy.initial_carry(n),
            episode=EpisodeStats(zeros, zeros.astype(jnp.int32), jnp.full(n, self.env.staggered)),
        )

    def collect(
        self, state: CollectorState | None, policy: PolicyState, keys_B: Array
    ) -> tuple[CollectorState, Trajectory, EpisodeTotals]:
        assert state is not None
        randomness = _randomness(self.policy, keys_B, self.length)
        zeros = jnp.zeros(state.reset.shape, jnp.float32)
        loop = _Loop(state, EpisodeTotals(zeros, zeros, zeros))

        def step(loop: _Loop, xs: tuple[Array, Array]) -> tuple[_Loop, dict[str, PyTree]]:
            return self._step(policy, loop, *xs)

        def chunk_of_steps(loop: _Loop, xs: PyTree) -> tuple[_Loop, PyTree]:
            after, records = jax.lax.scan(step, loop, xs)
            return after, (records, loop.at.carry)

        split = lambda x: x.reshape(self.length // self.chunk, self.chunk, *x.shape[1:])  # noqa: E731
        loop, (records, carry) = jax.lax.scan(chunk_of_steps, loop, jax.tree.map(split, randomness))
        records = jax.tree.map(lambda x: x.reshape(self.length, *x.shape[2:]), records)
        at = loop.at
        mask = self.env.action_mask(at.env_state)
        last_value = self.policy.act(policy, at.obs, at.carry, at.reset, mask).value
        trajectory = Trajectory(**records, carry=carry, last_value=last_value)
        return at, trajectory, jax.tree.map(jnp.sum, loop.totals)

    def _step(
        self, policy: PolicyState, loop: _Loop, keys_B: Array, noise_B: Array
    ) -> tuple[_Loop, dict[str, PyTree]]:
        at = loop.at
        mask = self.env.action_mask(at.env_state)
        out = self.policy.act(policy, at.obs, at.carry, at.reset, mask)
        action = out.distribution.sample(noise_B)
        env_state, timestep = self.env.step(keys_B, at.env_state, self.policy.head.to_env(action))
        record = {
            "obs": at.obs,
            "reset": at.reset,
            "action": action,
            "action_mask": mask,
            "log_prob": out.distribution.log_prob(action),
            "value": out.value,
            "reward": timestep.reward,
            "terminated": timestep.terminated,
            "truncated": timestep.truncated,
            "bootstrap_value": self._final_value(policy, timestep, out.carry, mask),
        }
        episode, totals = _count_episodes(at.episode, loop.totals, timestep)
        at = CollectorState(env_state, timestep.obs, timestep.done, out.carry, episode)
        return _Loop(at, totals), record

    def _final_value(
        self, policy: PolicyState, timestep: TimeStep, carry: PyTree, mask: Array | None
    ) -> Array:
        """V(final observation, carry after the last step) where an episode was truncated, else 0; float32[B].

        Not V(s_t), and not the value of the next episode's first observation (Pardo et al. 2018). Computed
        only at steps at which some environment was truncated: a branch, not a second forward pass every step.
        """
        cut = timestep.truncated & ~timestep.terminated

        def value() -> Array:
            out = self.policy.act(policy, timestep.final_obs, carry, jnp.zeros_like(cut), mask)
            return jnp.where(cut, out.value, 0.0)

        return jax.lax.cond(jnp.any(cut), value, lambda: jnp.zeros(cut.shape, jnp.float32))


@flax.struct.dataclass
class _Loop:
    at: CollectorState
    totals: EpisodeTotals


def _randomness(policy: Policy, keys_B: Array, length: int) -> tuple[Array, Array]:
    """Keys for the environments [T, B] and the action noise [T, B, ...] of a whole rollout, drawn at once."""
    env_keys_B, noise_keys_B = jax.vmap(jax.random.split, out_axes=1)(keys_B)
    at = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    env_keys_TB = jax.vmap(at, in_axes=(0, None), out_axes=1)(env_keys_B, jnp.arange(length))

    def draw(key: Array) -> Array:
        return draw_noise(policy.head.noise_kind, key, (length, *policy.head.noise_shape))

    return env_keys_TB, jax.vmap(draw, out_axes=1)(noise_keys_B)


def _count_episodes(
    episode: EpisodeStats, totals: EpisodeTotals, timestep: TimeStep
) -> tuple[EpisodeStats, EpisodeTotals]:
    done = timestep.done
    total_return = episode.episode_return + timestep.reward
    length = episode.episode_length + 1
    counted = (done & ~episode.skip).astype(jnp.float32)
    totals = EpisodeTotals(
        totals.count + counted,
        totals.episode_return + total_return * counted,
        totals.length + length.astype(jnp.float32) * counted,
    )
    episode = EpisodeStats(
        episode_return=jnp.where(done, 0.0, total_return),
        episode_length=jnp.where(done, 0, length),
        skip=episode.skip & ~done,
    )
    return episode, totals
