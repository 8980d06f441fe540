"""An environment as gymnax 0.0.x documents them and PureJaxRL takes them, and the same as for gymnax 1.x."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct
from gymnax.environments import environment, spaces


@struct.dataclass
class EnvState:
    x: jax.Array
    time: int


@struct.dataclass
class EnvParams:
    goal: float = 0.5
    max_steps_in_episode: int = 4


class OldWalk(environment.Environment):
    """Walks `stride` a step, from 0; ends beyond the goal, and after four steps."""

    def __init__(self, stride: float = 0.25):
        super().__init__()
        self.stride = stride

    @property
    def default_params(self):
        return EnvParams()

    def step_env(self, key, state, action, params):
        state = EnvState(x=state.x + self.stride * action, time=state.time + 1)
        done = self.is_terminal(state, params)
        info = {"discount": self.discount(state, params), "is_success": state.x > params.goal}
        return jax.lax.stop_gradient(self.get_obs(state)), state, state.x, done, info

    def reset_env(self, key, params):
        state = EnvState(x=jnp.zeros(()), time=0)
        return self.get_obs(state), state

    def get_obs(self, state):
        return jnp.array([state.x, 0.0])

    def is_terminal(self, state, params):
        return jnp.logical_or(state.x > params.goal, state.time >= params.max_steps_in_episode)

    @property
    def num_actions(self):
        return 2

    def action_space(self, params=None):
        return spaces.Discrete(2)

    def observation_space(self, params):
        return spaces.Box(0, 2, (2,), jnp.float32)


class Walk(OldWalk):
    def is_terminated(self, state, params):
        return state.x > params.goal

    is_terminal = environment.Environment.is_terminal


@struct.dataclass
class Place:
    x: jax.Array


class Endless(OldWalk):
    """Knows no time."""

    def step_env(self, key, state, action, params):
        x = state.x + self.stride * action
        return {"x": x}, Place(x), x, x > params.goal, {}

    def reset_env(self, key, params):
        return {"x": jnp.zeros(())}, Place(jnp.zeros(()))

    def observation_space(self, params):
        return spaces.Dict({"x": spaces.Box(0, 2, (), jnp.float32)})
