"""An environment whose values depend on what no agent observes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.agents import MultiAgentEnv
from jaxrl.envs.base import Box, Discrete, EnvSpec, TimeStep

# Of each agent: the step before which it has gone.
LEAVES = (3, 2)


class HiddenPrizes(MultiAgentEnv):
    """Two hidden signs x, y: at each step the first agent gets x and the second x * y, whatever they do.

    An agent observes who it is. So its value is 0 as far as it can know, and with n steps to go
    x * (1 - gamma^n) / (1 - gamma) or x * y * (...) for who sees the state: the time, x and y.
    """

    def __init__(self) -> None:
        self.spec = EnvSpec(
            name="tests.experience.agents.hidden_prizes:HiddenPrizes",
            observation_space=Box.of(0, 1, (2,)),
            action_space=Discrete(2),
            max_episode_steps=3,
            agents=("first", "second"),
            central_observation=Box.of(-1, 1, (6,)),
        )

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        signs = jnp.where(jax.random.bernoulli(key, 0.5, (2,)), 1.0, -1.0)
        return (jnp.zeros((), jnp.int32), signs), jnp.eye(2)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        time, signs = state
        reward = jnp.stack([signs[0], signs.prod()])
        ends = time + 1 >= jnp.asarray(LEAVES)
        return (time + 1, signs), TimeStep(jnp.eye(2), reward, ends, jnp.zeros(2, bool))

    def present(self, state: Any) -> jax.Array:
        return state[0] < jnp.asarray(LEAVES)

    def central(self, state: Any) -> jax.Array:
        return jnp.concatenate([jax.nn.one_hot(state[0], 4), state[1]])
