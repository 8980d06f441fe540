"""Environments whose observations and actions do not begin at 0, on the device and the host."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import registry
from jaxrl.envs.base import Discrete, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.wrappers.wrapper import Wrapper

STEPS = 4
NUMBERED = "tests.envs.numbered_environments:Numbered"
VECTORS = f"{NUMBERED}(vectors=True)"
ON_HOST = "gymnasium:tests.envs.numbered_environments:NumberedOnHost"


class Numbered(JaxEnv):
    """Observes -1, 0, 1, -1, ..., takes 5, 6, 7, and gives the number of the action that it was asked for.

    As `vectors` it observes (1, -2), (2, -1), (1, 0), ... and takes 5, 6, 7 with -1, 0: the reward is the
    first and a tenth of the second. Any other action costs 1000. Its solver takes 5, 6, 7, 5.
    """

    def __init__(self, vectors: bool = False):
        self.vectors = vectors
        self.spec = EnvSpec(
            VECTORS if vectors else NUMBERED,
            MultiDiscrete((2, 3), start=(1, -2)) if vectors else Discrete(3, start=-1),
            MultiDiscrete((3, 2), start=(5, -1)) if vectors else Discrete(3, start=5),
            max_episode_steps=STEPS,
            has_solver=True,
        )

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        time = jnp.int32(0)
        return time, self._observe(time)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        state = state + 1
        parts = action if self.vectors else action[None]
        low = jnp.array([5, -1][: len(parts)])
        size = jnp.array([3, 2][: len(parts)])
        reward = (parts.astype(jnp.float32) * jnp.array([1.0, 0.1])[: len(parts)]).sum()
        reward = jnp.where(((parts >= low) & (parts < low + size)).all(), reward, -1000.0)
        ended = state == STEPS
        return state, TimeStep(self._observe(state), reward.astype(jnp.float32), ended, jnp.zeros((), bool))

    def solve(self, state: Any) -> jax.Array:
        return jnp.stack([5 + state % 3, state % 2 - 1]) if self.vectors else 5 + state % 3

    def _observe(self, time: Any) -> jax.Array:
        return jnp.stack([1 + time % 2, time % 3 - 2]) if self.vectors else time % 3 - 1


class Around(Wrapper):
    """`Numbered` in an environment of one's own, which counts from 0 as what it is built on does."""

    def __init__(self) -> None:
        super().__init__(registry.make(NUMBERED))


class Seen(Wrapper):
    """`Numbered` with a vector as its observation, as tasks of a mixture need it."""

    def __init__(self) -> None:
        super().__init__(registry.make(NUMBERED, ("one_hot_observation",)))


class NumberedOnHost(gymnasium.Env[np.int64, np.int64]):
    """`Numbered` without vectors."""

    metadata: ClassVar[dict[str, Any]] = {}
    observation_space = gymnasium.spaces.Discrete(3, start=-1)
    action_space = gymnasium.spaces.Discrete(3, start=5)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.time = 0
        return np.int64(-1), {}

    def step(self, action: np.int64) -> Any:
        self.time += 1
        reward = float(action) if self.action_space.contains(action) else -1000.0
        return np.int64(self.time % 3 - 1), reward, self.time == STEPS, False, {}
