"""Final observations as rows of their own: an environment that counts, written down by hand."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.vector import VectorEnv
from jaxrl.experience import final_rows

B, END = 2, 3


class Counting(JaxEnv):
    """Shows, rewards and reports the steps of the episode, which terminates after `END`."""

    def __init__(self) -> None:
        reports = (InfoMetric("steps", "sum"),)
        self.spec = EnvSpec("test:Counting", Box.of(0, END, (1,)), Discrete(2), reports=reports)

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.int32(0), jnp.zeros(1)

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[jax.Array, TimeStep]:
        time = state + 1
        shown = time.astype(jnp.float32)
        return time, TimeStep(shown[None], shown, time == END, jnp.bool(False), info={"steps": shown})


def test_nothing_is_rewarded_ended_or_reported_in_a_final_row() -> None:
    env = VectorEnv(Counting())
    keys, action = jax.random.split(jax.random.key(0), B), jnp.zeros(B, jnp.int32)
    state, obs = jax.jit(env.reset)(keys)
    rows = final_rows.begin(env, state, obs)
    step = jax.jit(functools.partial(final_rows.step, env))
    seen = [obs[:, 0]]
    told: dict[str, list[jax.Array]] = {name: [] for name in ("reward", "ends", "steps")}
    for _ in range(8):
        rows, timestep = step(keys, rows, action)
        seen.append(timestep.obs[:, 0])
        told["reward"].append(timestep.reward)
        told["ends"].append(timestep.terminated | timestep.truncated)
        told["steps"].append(timestep.info["steps"])
    nan = np.nan
    expected = {
        "reward": [1, 2, 3, 0, 1, 2, 3, 0],
        "ends": [0, 0, 1, 0, 0, 0, 1, 0],
        "steps": [1, 2, 3, nan, 1, 2, 3, nan],  # NaN: nothing is reported
    }
    np.testing.assert_array_equal(np.stack(seen), np.tile([[0], [1], [2], [3]], (3, B))[:9])
    for name, values in expected.items():
        np.testing.assert_array_equal(np.stack(told[name]), np.repeat([values], B, axis=0).T)
