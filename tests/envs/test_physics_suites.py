"""Suites of physics in Brax's form, by an environment of that form: its ends and its reports."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.adapters import brax
from jaxrl.envs.base import Box, InfoMetric


@flax.struct.dataclass
class FallingState:
    obs: jax.Array
    reward: jax.Array
    done: jax.Array
    metrics: dict[str, jax.Array]


class Falling:
    """Falls by the action; below 0 the suite calls it done."""

    action_size = 1

    def reset(self, key: jax.Array) -> FallingState:
        return self._state(jnp.float32(10.0))

    def step(self, state: FallingState, action: jax.Array) -> FallingState:
        return self._state(state.obs[0] - action)

    def _state(self, height: jax.Array) -> FallingState:
        return FallingState(height[None], -height, (height < 0).astype(jnp.float32), {"height": height})


def test_done_is_a_termination_and_the_limit_a_truncation() -> None:
    env = brax.PhysicsEnv("suite:falling", Falling(), 3)
    assert (env.spec.observation_space, env.spec.max_episode_steps) == (Box.of(-np.inf, np.inf, (1,)), 3)
    state, obs = env.reset(jax.random.key(0))
    assert obs.tolist() == [10.0]
    flags, rewards = [], []
    for action in (1.0, 1.0, 9.0):
        state, timestep = env.step(jax.random.key(1), state, jnp.float32(action))
        flags.append((bool(timestep.terminated), bool(timestep.truncated)))
        rewards.append(float(timestep.reward))
    assert flags == [(False, False), (False, False), (True, True)]
    assert rewards == [-9.0, -8.0, 1.0]
    assert float(timestep.info["height"]) == -1.0


def test_parts_of_the_reward_are_summed_and_everything_else_averaged() -> None:
    found = brax.reports(["x_velocity", "reward_alive", "rewarded"])
    assert found == (
        InfoMetric("reward_alive", "sum"),
        InfoMetric("rewarded", "sum"),
        InfoMetric("x_velocity", "mean"),
    )
