"""TMaze: a sign at the start of a corridor shows where to turn at its end."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.names import changed_call, check_positive
from jaxrl.envs.native.random_words import random_words

_LONGEST = 2**24
_NORTH, _EAST, _SOUTH, _WEST = range(4)


@flax.struct.dataclass
class TMazeState:
    """bool[], whether the goal is in the north; int32[], squares from the start; int32[], steps so far."""

    north: jax.Array
    place: jax.Array
    time: jax.Array


class TMaze(JaxEnv):
    """The T-maze of Bakker (2001, "Reinforcement Learning with Long Short-Term Memory").

    Observation float32[3]: (0, 1, 1) at the start if the goal is in the north and (1, 1, 0) if it is in the
    south, (1, 0, 1) in the corridor, (0, 1, 0) at the junction. Action Discrete(4): north, east, south, west.
    The junction is `length` squares east of the start. To turn there terminates the episode, with a reward of
    4 towards the goal and -0.1 away from it. Standing still before a wall has -0.1 as well. The best
    return is 4; without memory half of the turns are right, 1.95. `env/success_rate` is of turns that were.

    Args:
      length: of the corridor.
      max_steps: an episode is truncated after so many; None is 2 * length + 10.
    """

    def __init__(self, length: int = 10, max_steps: int | None = None):
        label = "jaxrl:memory/TMaze"
        self._length = check_positive(f"{label}: length", length, _LONGEST)
        limit = 2 * length + 10 if max_steps is None else max_steps
        self._limit = check_positive(f"{label}: max_steps", limit)
        self.spec = EnvSpec(
            name=changed_call(label, TMaze, locals()),
            observation_space=Box.of(0.0, 1.0, (3,)),
            action_space=Discrete(4),
            max_episode_steps=limit,
            reports=(InfoMetric("success", "max"),),
            has_solver=True,
        )

    def reset(self, key: jax.Array) -> tuple[TMazeState, jax.Array]:
        zero = jnp.zeros((), jnp.int32)
        state = TMazeState(random_words(key, 1)[0] >> 31 == 1, zero, zero)
        return state, self._observe(state)

    def step(self, key: jax.Array, state: TMazeState, action: jax.Array) -> tuple[Any, TimeStep]:
        move = jnp.where(action == _EAST, 1, jnp.where(action == _WEST, -1, 0))
        turns = (state.place == self._length) & (move == 0)
        right = turns & (state.north == (action == _NORTH))
        place = jnp.clip(state.place + move, 0, self._length)
        still = ~turns & (place == state.place)
        state = TMazeState(state.north, place, state.time + 1)
        return state, TimeStep(
            obs=self._observe(state),
            reward=jnp.where(right, 4.0, jnp.where(turns | still, -0.1, 0.0)).astype(jnp.float32),
            terminated=turns,
            truncated=state.time >= self._limit,
            info={"success": right},
        )

    def solve(self, state: TMazeState) -> jax.Array:
        """int32[]: east, and at the junction towards the goal."""
        turn = jnp.where(state.north, _NORTH, _SOUTH)
        return jnp.where(state.place == self._length, turn, _EAST).astype(jnp.int32)

    def _observe(self, state: TMazeState) -> jax.Array:
        sign = jnp.where(state.north, jnp.array([0.0, 1.0, 1.0]), jnp.array([1.0, 1.0, 0.0]))
        corridor = jnp.array([1.0, 0.0, 1.0])
        junction = jnp.array([0.0, 1.0, 0.0])
        within = jnp.where(state.place == self._length, junction, corridor)
        return jnp.where(state.place == 0, sign, within)
