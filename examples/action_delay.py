"""A custom wrapper: actions arrive one step late, like a robot's behind a slow network.

Command:  jaxrl train ppo --config.env.wrappers="('action_delay:ActionDelay',)"
"""

import jax.numpy as jnp

from jaxrl import Wrapper


class ActionDelay(Wrapper):
    """Plays the previous action; at the start of an episode `first`."""

    def __init__(self, env, first: int = 0):
        super().__init__(env)
        self.first = jnp.asarray(first, jnp.int32)

    def reset(self, key, *task):
        state, obs = self.env.reset(key, *task)
        return {"env": state, "late": self.first}, obs

    def step(self, key, state, action):
        after, timestep = self.env.step(key, state["env"], state["late"])
        return {"env": after, "late": action}, timestep

    def inner(self, state):
        return state["env"]
