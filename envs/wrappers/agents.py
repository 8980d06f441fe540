"""`agent_id` and `central_observation`: more to see for each of several agents."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Dict, JaxEnv
from jaxrl.envs.wrappers.wrapper import ObservedSteps, require_box

# The parts of an observation: of the whole, for the value function alone, and of the agent.
CENTRAL = "central"
OWN = "own"


class AgentId(ObservedSteps):
    """Appends an agent's number, one-hot, to its observed vector: agents of one policy may then differ.

    The observation becomes float32.
    """

    for_agents = True

    def __init__(self, env: JaxEnv):
        super().__init__(env)
        space = require_box("agent_id", env, ndim=1)
        count = len(env.spec.agents)
        if not count:
            raise ValueError(
                f"wrapper agent_id needs an environment of several agents; {env.spec.name} has one"
            )
        box = Box((*space.low, *[0.0] * count), (*space.high, *[1.0] * count), (space.shape[0] + count,))
        self.spec = dataclasses.replace(env.spec, observation_space=box, goals=None)

    def see(self, obs: jax.Array, key: jax.Array, state: Any, action: Any, reward: jax.Array) -> jax.Array:
        """float32[A, F + A]."""
        return self.append(obs, axis=0)

    def append(self, obs: jax.Array, axis: int) -> jax.Array:
        """float32[..., F + A] of [..., F], whose rows along `axis` are the agents of whole environments."""
        count = self.spec.num_agents
        number = jnp.arange(obs.shape[axis]) % count
        one_hot = jax.nn.one_hot(number, count).reshape(-1, *[1] * (obs.ndim - axis - 2), count)
        ids = jnp.broadcast_to(one_hot, (*obs.shape[:-1], count))
        return jnp.concatenate([obs.astype(jnp.float32), ids], axis=-1)


class CentralObservation(ObservedSteps):
    """Observations become `{"central": the state of the whole, "own": the agent's observation}`.

    `network.central_value` adds it, as the outermost wrapper, and keeps the first part from the policy.
    """

    for_agents = True

    def __init__(self, env: JaxEnv):
        super().__init__(env)
        central = env.spec.central_observation
        if central is None:
            raise ValueError(
                f"wrapper central_observation needs a state of the whole, which {env.spec.name} does not have"
            )
        space = Dict(((CENTRAL, central), (OWN, env.spec.observation_space)))
        self.spec = dataclasses.replace(env.spec, observation_space=space, stacked_frames=1, goals=None)

    def see(self, obs: Any, key: jax.Array, state: Any, action: Any, reward: jax.Array) -> dict[str, Any]:
        """The parts, with a leading A; all agents have the same state of the whole."""
        agents = self.spec.num_agents
        whole = jax.tree.map(lambda x: jnp.broadcast_to(x, (agents, *x.shape)), self.central(state))
        return {CENTRAL: whole, OWN: obs}
