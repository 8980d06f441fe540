"""`jaxrl:BitFlip`: bits that are to be turned into a goal, one at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.goals import ACHIEVED, DESIRED, OBSERVATION, NearGoals
from jaxrl.envs.names import changed_call, check_positive
from jaxrl.envs.native.random_words import random_words

_NAME = "jaxrl:BitFlip"
_MOST_BITS = 1024


@flax.struct.dataclass
class BitFlipState:
    """The bits and the goal, float32[bits] of 0 and 1; int32[], steps so far."""

    bits: jax.Array
    goal: jax.Array
    time: jax.Array


class BitFlip(JaxEnv):
    """An action flips one bit; the goal is a pattern of all of them (Andrychowicz et al. 2017, section 3.1).

    Start and goal are uniform. A step that makes the goal is worth 1 and ends the episode, every other -1.
    An episode is truncated after as many steps as there are `bits`, which always suffice.
    """

    def __init__(self, bits: int = 8):
        self._bits = check_positive(f"{_NAME}: bits", bits, _MOST_BITS)
        self._goals = NearGoals()
        pattern = Box.of(0.0, 1.0, (bits,))
        self.spec = EnvSpec(
            name=changed_call(_NAME, BitFlip, locals()),
            observation_space=Dict(((ACHIEVED, pattern), (DESIRED, pattern), (OBSERVATION, pattern))),
            action_space=Discrete(bits),
            max_episode_steps=bits,
            reports=(InfoMetric("success", "last"),),
            goals=self._goals,
            has_solver=True,
        )

    def reset(self, key: jax.Array) -> tuple[BitFlipState, Any]:
        drawn = (random_words(key, 2 * self._bits) & 1).astype(jnp.float32)
        state = BitFlipState(drawn[: self._bits], drawn[self._bits :], jnp.zeros((), jnp.int32))
        return state, _observe(state)

    def step(self, key: jax.Array, state: BitFlipState, action: jax.Array) -> tuple[BitFlipState, TimeStep]:
        flipped = jnp.where(jnp.arange(self._bits) == action, 1.0 - state.bits, state.bits)
        state = dataclasses.replace(state, bits=flipped, time=state.time + 1)
        success = self._goals.compute_terminated(state.bits, state.goal)
        return state, TimeStep(
            obs=_observe(state),
            reward=self._goals.compute_reward(state.bits, state.goal),
            terminated=success,
            truncated=state.time >= self._bits,
            info={"success": success},
        )

    def solve(self, state: BitFlipState) -> jax.Array:
        """int32[]: the first bit that is not as the goal wants it."""
        return jnp.argmax(state.bits != state.goal).astype(jnp.int32)


def _observe(state: BitFlipState) -> dict[str, jax.Array]:
    return {OBSERVATION: state.bits, ACHIEVED: state.bits, DESIRED: state.goal}
