"""Environments for tests of algorithms; named `tests.algorithms.environments:Class(argument=value)`."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.spaces import Mixed

FORBIDDEN_REWARD = -1000.0
_ACTIONS = {
    "discrete": Discrete(3),
    "several": MultiDiscrete((3, 2)),
    "continuous": Box.of(-2.0, 2.0, (2,)),
    "mixed": Mixed((("which", Discrete(3)), ("how_much", Box.of(-2.0, 2.0, (2,))))),
}


@flax.struct.dataclass
class ChanceState:
    """int32[], the action that is forbidden now; float32[], what the next reward is raised by."""

    forbidden: jax.Array
    poison: jax.Array


class Chance(JaxEnv):
    """Observations, rewards, ends and masks drawn from the keys: whatever an agent does, the same happens.

    Observations are float32[size]; rewards are normal around 1. Episodes terminate with probability `end` at
    each step and are cut off with probability `end`. If `masked`, one of the three actions is forbidden,
    another one each step; taking it ends the episode with `FORBIDDEN_REWARD`. `actions` names their space.
    """

    def __init__(
        self, size: int = 3, end: float = 0.1, masked: bool = False, actions: str = "discrete"
    ) -> None:
        self._end, self._masked, self._size = end, masked, size
        observed = Box.of(-jnp.inf, jnp.inf, (size,))
        self.spec = EnvSpec(
            "Chance", observed, _ACTIONS[actions], has_action_mask=masked, has_solver=actions == "discrete"
        )

    def reset(self, key: jax.Array) -> tuple[ChanceState, jax.Array]:
        state, obs, _ = self._draw(key)
        return state, obs

    def step(self, key: jax.Array, state: ChanceState, action: jax.Array) -> tuple[ChanceState, TimeStep]:
        after, obs, (reward, *ends) = self._draw(key)
        wrong = (action == state.forbidden) if self._masked else jnp.array(False)
        reward = jnp.where(wrong, FORBIDDEN_REWARD, 1.0 + reward + state.poison)
        terminated, truncated = (jax.scipy.stats.norm.cdf(x) < self._end for x in ends)
        return after, TimeStep(obs, reward, terminated | wrong, truncated)

    def action_mask(self, state: ChanceState) -> jax.Array:
        return jnp.arange(3) != state.forbidden

    def solve(self, state: ChanceState) -> jax.Array:
        """int32[], the action after the one that is forbidden, or that would be."""
        return (state.forbidden + 1) % 3

    def _draw(self, key: jax.Array) -> tuple[ChanceState, jax.Array, jax.Array]:
        # One draw for everything: each takes long to compile.
        noise = jax.random.normal(key, (self._size + 4,))
        forbidden = jnp.sum(noise[0] > jnp.array([-0.43, 0.43]))  # thirds of the normal distribution
        return ChanceState(forbidden, jnp.zeros(())), noise[: self._size], noise[-3:]
