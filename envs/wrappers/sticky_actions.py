"""`sticky_actions`: randomness for deterministic games."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Dict, JaxEnv, TimeStep
from jaxrl.envs.wrappers.wrapper import Wrapper


@flax.struct.dataclass
class StickyActionsState:
    """The wrapped environment's state, the action it last carried out, and bool[]: is there one."""

    env: Any
    action: jax.Array
    started: jax.Array


class StickyActions(Wrapper):
    """Repeats the action last carried out, with `probability`, in place of the one given.

    Machado et al. 2018, "Revisiting the Arcade Learning Environment", section 5.2. An episode's first
    action is always carried out: not every environment has an action that does nothing.
    """

    def __init__(self, env: JaxEnv, probability: float = 0.25):
        if not isinstance(probability, int | float) or not 0 <= probability <= 1:
            raise ValueError(f"wrapper sticky_actions: probability (={probability!r}) must lie in [0, 1]")
        if env.spec.has_action_mask:
            raise ValueError(f"wrapper sticky_actions would repeat actions that {env.spec.name} masks")
        super().__init__(env)
        # The best action depends on whether it will be carried out.
        self.spec = dataclasses.replace(env.spec, has_solver=False)
        self._probability = float(probability)

    def reset(self, key: jax.Array, *task: Any) -> tuple[StickyActionsState, Any]:
        state, obs = self.env.reset(key, *task)
        space = self.spec.action_space
        assert not isinstance(space, Dict)
        return StickyActionsState(state, jnp.zeros(space.shape, space.dtype), jnp.zeros((), bool)), obs

    def step(
        self, key: jax.Array, state: StickyActionsState, action: jax.Array
    ) -> tuple[StickyActionsState, TimeStep]:
        stick_key, env_key = jax.random.split(key)
        repeat = state.started & jax.random.bernoulli(stick_key, self._probability)
        action = jnp.where(repeat, state.action, jnp.asarray(action, state.action.dtype))
        env_state, timestep = self.env.step(env_key, state.env, action)
        return StickyActionsState(env_state, action, jnp.ones((), bool)), timestep

    def inner(self, state: Any) -> Any:
        return state.env
