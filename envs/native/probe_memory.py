"""A probe of the recurrent core."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.names import check_positive
from jaxrl.envs.native.probe import probe_step, random_sign


@flax.struct.dataclass
class MemoryState:
    """int32[] steps taken, and float32[], the cue (-1 or 1)."""

    time: jax.Array
    cue: jax.Array


class ProbeMemory(JaxEnv):
    """The first observation holds a cue that must be answered `delay` steps later. The best return is 1.

    Observation float32[2]: the cue (-1 or 1) in the first, 0 later; and 1 where the answer is due. There
    action 1 is right for the cue 1 and action 0 for -1: reward 1, else -1, and the episode terminates.
    Without memory the expected return is 0. With a delay longer than the rollout it fails when the carry
    does not live across rollouts; with any, when the carry is reset or stored at the wrong step.
    """

    def __init__(self, delay: int = 4):
        self._delay = check_positive("jaxrl:ProbeMemory: delay", delay)
        self.spec = EnvSpec(
            name=f"jaxrl:ProbeMemory({delay=})",
            observation_space=Box.of((-1.0, 0.0), (1.0, 1.0), (2,)),
            action_space=Discrete(2),
            max_episode_steps=delay + 1,
        )

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        state = MemoryState(jnp.zeros((), jnp.int32), random_sign(key)[0])
        return state, self._observe(state)

    def step(self, key: jax.Array, state: MemoryState, action: jax.Array) -> tuple[Any, TimeStep]:
        due = state.time >= self._delay
        reward = jnp.where(due, jnp.where((action == 1) == (state.cue > 0), 1.0, -1.0), 0.0)
        state = MemoryState(state.time + 1, state.cue)
        return state, probe_step(self._observe(state), reward, terminated=due)

    def _observe(self, state: MemoryState) -> jax.Array:
        cue = jnp.where(state.time == 0, state.cue, 0.0)
        return jnp.stack([cue, (state.time == self._delay).astype(jnp.float32)])
