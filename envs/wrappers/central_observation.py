"""`central_observation`: the global state of the environment, beside each observation."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import Dict, JaxEnv, TimeStep
from jaxrl.envs.wrappers.wrapper import Wrapper

NAME = "central_observation"
# The parts of an observation: of the whole, for the value function alone, and of the agent.
CENTRAL = "central"
OWN = "own"


class CentralObservation(Wrapper):
    """Observations become `{"central": the global state, "own": the agent's observation}`.

    `network.central_value` adds it, as the outermost wrapper, and keeps the first part from the policy.
    """

    for_agents = True

    def __init__(self, env: JaxEnv):
        super().__init__(env)
        central = env.spec.central_observation
        if central is None:
            raise ValueError(
                f"wrapper {NAME} needs a state of the whole, which {env.spec.name} does not have"
            )
        space = Dict(((CENTRAL, central), (OWN, env.spec.observation_space)))
        self.spec = dataclasses.replace(env.spec, observation_space=space, stacked_frames=1, goals=None)

    def reset(self, key: jax.Array, *task: Any) -> tuple[Any, Any]:
        state, obs = self.env.reset(key, *task)
        return state, self._with_central(state, obs)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        state, timestep = self.env.step(key, state, action)
        return state, dataclasses.replace(timestep, obs=self._with_central(state, timestep.obs))

    def _with_central(self, state: Any, obs: Any) -> dict[str, Any]:
        """The parts, with a leading A; all agents have the same state of the whole."""
        agents = self.spec.num_agents
        whole = jax.tree.map(lambda x: jnp.broadcast_to(x, (agents, *x.shape)), self.central(state))
        return {CENTRAL: whole, OWN: obs}
