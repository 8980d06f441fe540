"""Episodes that are played for an evaluation: each begins with a fresh memory, and the quota is exact."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.vector import VectorEnv
from jaxrl.experience.episodes import EpisodePlayer


class Echo(JaxEnv):
    """Rewards with the action; terminates after two steps."""

    spec = EnvSpec("test:Echo", Box.of(0, 1, (1,)), Discrete(100), max_episode_steps=2)

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.int32(0), jnp.zeros(1)

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[jax.Array, TimeStep]:
        time = state + 1
        return time, TimeStep(jnp.zeros(1), action.astype(jnp.float32), time == 2, jnp.bool(False))


class Counting:
    """Says how many observations it has seen since its memory was empty; it is told when to empty it."""

    def prepare(self, acting: None) -> None:
        return acting

    def initial_carry(self, n: int) -> jax.Array:
        return jnp.zeros(n, jnp.int32)

    def forward(self, acting: None, obs: jax.Array, carry: jax.Array, reset: jax.Array, mask: None) -> Any:
        return SimpleNamespace(carry=jnp.where(reset, 0, carry) + 1)

    def greedy(self, out: Any) -> jax.Array:
        return out.carry

    def to_env(self, action: jax.Array) -> jax.Array:
        return action


def test_each_episode_begins_with_a_fresh_memory() -> None:
    agent: Any = Counting()
    acting: Any = None
    keys, quota = jax.random.split(jax.random.key(0), 2), jnp.array([3, 1])
    player = EpisodePlayer(agent, VectorEnv(Echo()))
    found = jax.jit(lambda: player.play(acting, keys, quota, 3, False))()
    np.testing.assert_array_equal(found.played, [[True, True, True], [True, False, False]])
    np.testing.assert_array_equal(np.asarray(found.episode_return)[found.played], [3.0] * 4)  # 1 + 2
    np.testing.assert_array_equal(np.asarray(found.length)[found.played], [2] * 4)
