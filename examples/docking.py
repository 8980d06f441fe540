"""A custom environment: a cart brakes at a dock, with a continuous force and a report of its success.

Command:  jaxrl train ppo_continuous --env=docking:Docking --config.stop.steps=200_000 --workdir=runs/docking
"""

import jax
import jax.numpy as jnp

from jaxrl import Box, EnvSpec, InfoMetric, JaxEnv, TimeStep

SECONDS_PER_STEP = 0.1


class Docking(JaxEnv):
    """Shows position and speed; an episode is over at the dock (0), out of range, or after 100 steps."""

    def __init__(self, drag: float = 0.1):
        self.drag = drag
        self.spec = EnvSpec(
            "Docking",
            observation_space=Box.of(-4, 4, (2,)),
            action_space=Box.of(-1, 1, (1,)),
            max_episode_steps=100,
            reports=(InfoMetric("success"),),
        )

    def reset(self, key):
        position = jax.random.uniform(key, minval=1.0, maxval=2.0)
        state = {"position": position, "speed": jnp.float32(0), "t": jnp.int32(0)}
        return state, self._observe(state)

    def step(self, key, state, action):
        force = jnp.clip(action[0], -1, 1)
        speed = state["speed"] + SECONDS_PER_STEP * (force - self.drag * state["speed"])
        position = state["position"] + SECONDS_PER_STEP * speed
        state = {"position": position, "speed": speed, "t": state["t"] + 1}
        docked = (jnp.abs(position) < 0.05) & (jnp.abs(speed) < 0.1)
        lost = jnp.abs(position) > 3
        reward = -0.01 - 0.01 * jnp.abs(position) - 0.005 * force**2 + docked - lost
        timestep = TimeStep(
            obs=self._observe(state),
            reward=reward,
            terminated=docked | lost,
            truncated=state["t"] == self.spec.max_episode_steps,
            info={"success": docked.astype(jnp.float32)},
        )
        return state, timestep

    def _observe(self, state):
        return jnp.stack([state["position"], jnp.clip(state["speed"], -4, 4)])
