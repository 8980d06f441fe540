"""The compiled parts of a rollout of host environments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.networks import Policy, PolicyOutput
from jaxrl.networks.distributions import draw_noise
from jaxrl.types import Array, PolicyState, PyTree


@flax.struct.dataclass
class Chosen:
    """What the policy did in the rows of one group of N environments.

    Attributes:
      action, log_prob, value: [T, N, ...].
      carries: tree of [T / L, N, ...], the carry before each chunk.
    """

    action: Array
    log_prob: Array
    value: Array
    carries: PyTree


@flax.struct.dataclass
class GroupLoop:
    """What the device keeps of one group of N environments during a rollout.

    Attributes:
      t: int32[], the row that comes next.
      carry: tree of [N, ...], before that row.
      noise: [T, N, ...] of the actions.
      chosen: filled up to row t.
    """

    t: Array
    carry: PyTree
    noise: Array
    chosen: Chosen


@dataclass(frozen=True)
class GroupPrograms:
    """The compiled parts of a rollout; N environments of one group each."""

    policy: Policy
    decode: Callable[[PyTree], PyTree]
    action_mask: Callable[[PyTree], Array | None]
    length: int
    chunk: int

    def noise(self, keys_N: Array) -> Array:
        """[T, N, ...] for the actions: what a device collector draws from the same keys."""
        head = self.policy.head
        _, noise_keys_N = jax.vmap(jax.random.split, out_axes=1)(keys_N)
        draw = lambda key: draw_noise(head.noise_kind, key, (self.length, *head.noise_shape))  # noqa: E731
        noise: Array = jax.vmap(draw, out_axes=1)(noise_keys_N)
        return noise

    def begin(
        self, keys_N: Array, carry: PyTree, policy: PolicyState, obs: PyTree, first: Array
    ) -> GroupLoop:
        """The state before row 0."""
        length, noise = self.length, self.noise(keys_N)

        def rows(x: Array, count: int) -> Array:
            return jnp.zeros((count, *x.shape), x.dtype)

        # Only shapes and dtypes of these are used.
        out = self.act(policy, carry, obs, first)
        action = out.distribution.sample(noise[0])
        return GroupLoop(
            t=jnp.zeros((), jnp.int32),
            carry=jax.tree.map(jnp.copy, carry),
            noise=noise,
            chosen=Chosen(
                action=rows(action, length),
                log_prob=rows(out.value, length),
                value=rows(out.value, length),
                carries=jax.tree.map(lambda x: rows(x, length // self.chunk), carry),
            ),
        )

    def step(
        self, loop: GroupLoop, policy: PolicyState, obs: PyTree, first: Array
    ) -> tuple[GroupLoop, Array]:
        """Consumes one row; returns the actions for the environments."""
        t, chosen = loop.t, loop.chosen
        out = self.act(policy, loop.carry, obs, first)
        action = out.distribution.sample(loop.noise[t])

        def keep(kept: Array, x: Array) -> Array:
            return kept.at[t // self.chunk].set(jnp.where(t % self.chunk == 0, x, kept[t // self.chunk]))

        chosen = Chosen(
            action=chosen.action.at[t].set(action),
            log_prob=chosen.log_prob.at[t].set(out.distribution.log_prob(action)),
            value=chosen.value.at[t].set(out.value),
            carries=jax.tree.map(keep, chosen.carries, loop.carry),
        )
        after = dataclasses.replace(loop, t=t + 1, carry=out.carry, chosen=chosen)
        return after, self.policy.head.to_env(action)

    def last_value(self, loop: GroupLoop, policy: PolicyState, obs: PyTree, first: Array) -> Array:
        """float32[N]: V of the observation after the rollout; the carry stays before it."""
        value: Array = self.act(policy, loop.carry, obs, first).value
        return value

    def finish(self, groups: list[Chosen], last_values: list[Array], cut_TB: Array) -> dict[str, Any]:
        """The fields of a `Trajectory` that the policy makes, groups joined; `cut_TB`: only truncated."""

        def join(*parts: Array) -> Array:
            return jnp.concatenate(parts, axis=1)

        value = join(*(chosen.value for chosen in groups))
        last_value = jnp.concatenate(last_values)
        following = jnp.concatenate([value[1:], last_value[None]])
        return {
            "action": join(*(chosen.action for chosen in groups)),
            "log_prob": join(*(chosen.log_prob for chosen in groups)),
            "value": value,
            # The row after a truncation is the final observation, consumed with the live carry.
            "bootstrap_value": jnp.where(cut_TB, following, 0.0),
            "carry": jax.tree.map(join, *(chosen.carries for chosen in groups)),
            "last_value": last_value,
        }

    def act(self, policy: PolicyState, carry: PyTree, obs: PyTree, first: Array) -> PolicyOutput:
        """What the policy says of a row [N, ...] as the environment stores it."""
        return self.policy.act(policy, self.decode(obs), carry, first, self.action_mask(obs))
