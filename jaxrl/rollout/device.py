"""Collecting on the device: JAX environments inside the compiled program (Anakin in Hessel et al. 2021)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp

from envs.base import TimeStep
from envs.spaces import Discrete, MultiDiscrete, has_choice
from envs.vector import VectorEnv
from jaxrl.networks import Policy, PolicyOutput
from jaxrl.networks.distributions import draw_noise, elementwise
from jaxrl.rollout.base import Collector
from jaxrl.rollout.packing import Packing
from jaxrl.rollout.statistics import NO_REPORTS, EpisodeReports, count_episodes
from jaxrl.types import (
    Array,
    CollectorState,
    EpisodeStats,
    EpisodeTotals,
    PolicyState,
    PyTree,
    Trajectory,
)

# First states of episodes are computed ahead of a rollout where those of one environment take less: then
# they take no more memory than the trajectory.
_MOST_BYTES_OF_STARTS = 256


@dataclass(frozen=True)
class DeviceCollector(Collector):
    """Collects inside a compiled program; pure functions over this device's environments.

    Attributes:
      policy: acts; its parameters and statistics come with each call.
      env: the environments.
      length: T.
      chunk: L; the carry before every L-th step is kept.
      few_kernels: launch as few kernels per step as possible, without conditionals. What a step stores goes
        into few arrays, first states of episodes are computed whether one starts or not, and the values of
        final observations with the next step's actions.
      unroll: steps in each turn of a loop that does little in each.
      reports: what is reported of episodes.
    """

    policy: Policy
    env: VectorEnv
    length: int
    chunk: int
    few_kernels: bool = False
    unroll: int = 1
    reports: EpisodeReports = NO_REPORTS

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
            episode=EpisodeStats(
                episode_return=zeros,
                episode_length=zeros.astype(jnp.int32),
                skip=jnp.full(n, self.env.staggered),
                tallies=self.reports.begin(n),
            ),
        )

    def collect(
        self, state: CollectorState | None, policy: PolicyState, keys_B: Array
    ) -> tuple[CollectorState, Trajectory, EpisodeTotals]:
        assert state is not None
        randomness: tuple[PyTree, ...] = _randomness(self.policy, keys_B, self.length)
        if self.few_kernels:
            randomness += self._starts(randomness[0])
        final = _Final(state.obs, jnp.zeros_like(state.reset)) if self.few_kernels else None
        loop = _Loop(state, final)

        def plain_step(loop: _Loop, xs: PyTree) -> tuple[_Loop, PyTree]:
            return self._step(policy, loop, *xs)

        packing: Packing | None = None
        step: Callable[[_Loop, PyTree], tuple[_Loop, PyTree]] = plain_step
        if self.few_kernels:
            first = jax.tree.map(lambda x: x[0], randomness)
            packing = Packing.of(jax.eval_shape(plain_step, loop, first)[1])
            step = packing.packed(plain_step)

        def chunk_of_steps(loop: _Loop, xs: PyTree) -> tuple[_Loop, PyTree]:
            after, records = jax.lax.scan(step, loop, xs)
            return after, (records, loop.at.carry)

        split = lambda x: x.reshape(self.length // self.chunk, self.chunk, *x.shape[1:])  # noqa: E731
        loop, (records, carry) = jax.lax.scan(chunk_of_steps, loop, jax.tree.map(split, randomness))
        records = jax.tree.map(lambda x: x.reshape(self.length, *x.shape[2:]), records)
        out, final_value = self._act(policy, loop, self.env.action_mask(loop.at.env_state))
        if packing is not None:
            records = packing.unpack(records)
            # Those of a step were computed in the step after it.
            later = records["bootstrap_value"][1:]
            assert final_value is not None
            records["bootstrap_value"] = jnp.concatenate([later, final_value[None]])
        info, score = records.pop("info"), records.pop("score")
        if records["action_mask"] is not None:
            records["log_prob"] = self._checked(records["log_prob"], records["action_mask"])
        trajectory = Trajectory(**records, carry=carry, last_value=out.value)
        done = trajectory.terminated | trajectory.truncated
        episode, totals = count_episodes(
            reports=self.reports,
            episode=state.episode,
            reward_TB=trajectory.reward if score is None else score,
            done_TB=done,
            info_TB=info,
            unroll=self.unroll,
        )
        return dataclasses.replace(loop.at, episode=episode), trajectory, totals

    def _act(self, policy: PolicyState, loop: _Loop, mask: Array | None) -> tuple[PolicyOutput, Array | None]:
        """The policy's output; and with `few_kernels` the final values of the step before, else None."""
        at, final = loop.at, loop.final
        if final is None:
            return self.policy.act(policy, at.obs, at.carry, at.reset, mask), None
        count = len(at.reset)
        both = lambda x, y: jax.tree.map(lambda a, b: jnp.concatenate([a, b]), x, y)  # noqa: E731
        out = self.policy.act(
            policy,
            both(at.obs, final.obs),
            both(at.carry, at.carry),
            both(at.reset, jnp.zeros_like(at.reset)),
            both(mask, mask),
        )
        here = jax.tree.map(lambda x: x[:count], out)
        return here, jnp.where(final.cut, out.value[count:], 0.0)

    def _step(
        self, policy: PolicyState, loop: _Loop, keys_B: Array, noise_B: Array, starts: PyTree = None
    ) -> tuple[_Loop, dict[str, PyTree]]:
        at = loop.at
        mask = self.env.action_mask(at.env_state)
        out, final_value = self._act(policy, loop, mask)
        distribution = elementwise(out.distribution) if self.few_kernels else out.distribution
        action = distribution.sample(noise_B)
        env_state, timestep = self.env.step(
            keys_B, at.env_state, self.policy.head.to_env(action), starts, conditional=not self.few_kernels
        )
        if final_value is None:
            final_value = self._final_value(policy, timestep, out.carry, mask)
        record = {
            "obs": at.obs,
            "reset": at.reset,
            "action": action,
            "action_mask": mask,
            "log_prob": distribution.log_prob(action),
            "value": out.value,
            "reward": timestep.reward,
            "terminated": timestep.terminated,
            "truncated": timestep.truncated,
            "bootstrap_value": final_value,
            "score": timestep.score,
            "info": {key: timestep.info[key].astype(jnp.float32) for key in self.reports.info_keys},
        }
        # The episodes are counted after the rollout.
        at = CollectorState(env_state, timestep.obs, timestep.done, out.carry, at.episode)
        final = _Final(timestep.final_obs, _cut(timestep)) if self.few_kernels else None
        return _Loop(at, final), record

    def _checked(self, log_prob_TB: Array, mask_TB: Array) -> Array:
        """With NaN where a mask allows nothing, as no action was right there; it is found like any NaN."""
        space = self.env.spec.action_space
        assert isinstance(space, Discrete | MultiDiscrete)
        return jnp.where(has_choice(space, mask_TB), log_prob_TB, jnp.nan)

    def _starts(self, keys_TB: Array) -> tuple[PyTree, ...]:
        """(first states of episodes for every step,) where they are small enough to keep, else ()."""
        if self.env.resets_in_rounds or not self.env.starts_by_keys:
            return ()
        one_step = jax.tree.leaves(jax.eval_shape(self.env.starts, keys_TB[0]))
        if sum(x.size * x.dtype.itemsize for x in one_step) > _MOST_BYTES_OF_STARTS * keys_TB.shape[1]:
            return ()
        return (jax.vmap(self.env.starts)(keys_TB),)

    def _final_value(
        self, policy: PolicyState, timestep: TimeStep, carry: PyTree, mask: Array | None
    ) -> Array:
        """V(final observation, carry after the last step) where an episode was truncated, else 0; float32[B].

        Not V(s_t), and not the value of the next episode's first observation (Pardo et al. 2018). Computed
        only at steps at which some environment was truncated: a branch, not a second forward pass every step.
        """
        cut = _cut(timestep)

        def value() -> Array:
            out = self.policy.act(policy, timestep.final_obs, carry, jnp.zeros_like(cut), mask)
            return jnp.where(cut, out.value, 0.0)

        return jax.lax.cond(jnp.any(cut), value, lambda: jnp.zeros(cut.shape, jnp.float32))


@flax.struct.dataclass
class _Loop:
    """Before a step.

    Attributes:
      at: where the environments are.
      final: with `few_kernels`, what the step before left to do.
    """

    at: CollectorState
    final: _Final | None


@flax.struct.dataclass
class _Final:
    """Observations whose value the next step computes: the last ones of episodes where `cut`."""

    obs: PyTree
    cut: Array


def _cut(timestep: TimeStep) -> Array:
    """bool[B], where an episode was truncated: the value of its last observation stands for the rest."""
    return timestep.truncated & ~timestep.terminated


def _randomness(policy: Policy, keys_B: Array, length: int) -> tuple[Array, Array]:
    """Keys for the environments [T, B] and the action noise [T, B, ...] of a whole rollout, drawn at once."""
    env_keys_B, noise_keys_B = jax.vmap(jax.random.split, out_axes=1)(keys_B)
    at = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    env_keys_TB = jax.vmap(at, in_axes=(0, None), out_axes=1)(env_keys_B, jnp.arange(length))

    def draw(key: Array) -> Array:
        return draw_noise(policy.head.noise_kind, key, (length, *policy.head.noise_shape))

    return env_keys_TB, jax.vmap(draw, out_axes=1)(noise_keys_B)
