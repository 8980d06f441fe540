"""Environments whose suite results are known whatever a policy does."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.tasks import TaskGroup


class Dark(JaxEnv):
    """Pays 1 a step and terminates after `length` of at most 20; what the policy does plays no part.

    The info of a step: `cost`, 1 in the first `hazards` steps; `goal`, 1 at the end if `reached`.
    """

    def __init__(self, length: int = 10, hazards: int = 0, reached: bool = True) -> None:
        self._length, self._hazards, self._reached = length, hazards, reached
        self.spec = EnvSpec("Corridor", Box.of(0.0, 1.0, (2,)), Discrete(3), max_episode_steps=20)

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        return jnp.zeros((), jnp.int32), jnp.zeros(2)

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[Any, TimeStep]:
        time = state + 1
        done = time == self._length
        info = {"cost": (time <= self._hazards).astype(jnp.float32), "goal": done & self._reached}
        return time, TimeStep(jnp.zeros(2), jnp.float32(1), done, jnp.zeros((), bool), info=info)


class Rooms(JaxEnv):
    """An episode in room i has i + 1 steps, of which each pays `pay`; the small rooms are 0 and 1."""

    default_task = {"room": jnp.int32(5), "pay": jnp.float32(2)}  # noqa: RUF012
    task_groups = {  # noqa: RUF012
        "size": TaskGroup("room", {"small": np.array([0, 1], np.int32), "large": np.array([2, 3], np.int32)})
    }

    def __init__(self) -> None:
        tasks = Dict((("pay", Box.of(0.0, 9.0, ())), ("room", Discrete(6))))
        self.spec = EnvSpec(
            "Rooms", Box.of(0.0, 1.0, (2,)), Discrete(3), max_episode_steps=20, task_space=tasks
        )

    def reset(self, key: jax.Array, task: Any = None) -> tuple[Any, Any]:
        return {"time": jnp.zeros((), jnp.int32), **task}, jnp.zeros(2)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        after = state | {"time": state["time"] + 1}
        done = after["time"] > state["room"]
        return after, TimeStep(jnp.zeros(2), state["pay"], done, jnp.zeros((), bool))


class Corridor(Dark):
    """The same, with pictures: a bar that grows by 2 of 40 columns at each step."""

    def render(self, state: jax.Array) -> np.ndarray:
        picture = np.zeros((20, 40, 3), np.uint8)
        picture[:, : 2 * int(state)] = 255
        return picture
