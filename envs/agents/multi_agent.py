"""The interface of environments of several agents, and how one of them is seen as a whole."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import EnvSpec, JaxEnv, TimeStep


class MultiAgentEnv(JaxEnv, abc.ABC):
    """One environment with the agents `spec.agents`, which all have the spaces of `spec`.

    A `JaxEnv` in which whatever belongs to an agent has a leading A, the number of agents: observations,
    actions, rewards, both flags, masks. `info` belongs to the environment. `spec.max_episode_steps` is the
    limit of the environment.

    An agent takes part in a step if it is `present` in the state before it. What the environment returns
    for other agents, and does with their actions, is ignored. An agent that has gone without a flag has
    terminated. The episode of the environment is over once no agent is present, or all present agents have a
    flag, also agents that have just entered.

    With `spec.central_observation` it also has `central`, for value functions that see more than an agent.
    """

    spec: EnvSpec

    @abc.abstractmethod
    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        """Starts an episode; returns `(state, obs)`, `obs` with leaves [A, ...]."""

    @abc.abstractmethod
    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        """Advances by one step of all; `action` and all but `info` of the result have a leading A."""

    @abc.abstractmethod
    def present(self, state: Any) -> jax.Array:
        """bool[A], who takes part in the next step."""

    def central(self, state: Any) -> Any:
        """The global state, an element of `spec.central_observation`, without a leading A."""
        raise NotImplementedError(f"{self.spec.name} has no state of the whole")


@flax.struct.dataclass
class Flags:
    """The meaning of a step for each agent; bool[A].

    Attributes:
      took_part: was present before it.
      terminated, truncated: the agent's episode ended; False of others.
    """

    took_part: jax.Array
    terminated: jax.Array
    truncated: jax.Array


class WholeEnv(JaxEnv):
    """An environment of several agents as a batch of environments resets it: with one end for all.

    Its steps have one flag each for the environment, a reward for each agent, 0 where it took no part, and
    the agents' own `Flags` as `team`.
    """

    def __init__(self, env: MultiAgentEnv):
        self.env = env
        self.spec = env.spec

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        return self.env.reset(key)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        before = self.env.present(state)
        state, timestep = self.env.step(key, state, action)
        after = self.env.present(state)
        has_left = ~after & ~timestep.done
        flags = Flags(
            took_part=before,
            terminated=before & (timestep.terminated | has_left),
            truncated=before & timestep.truncated,
        )
        is_over = ~jnp.any(after & ~timestep.done)
        is_cut = is_over & jnp.any(flags.truncated & ~flags.terminated)
        counted = lambda x: jnp.where(before, x, 0.0).astype(jnp.float32)  # noqa: E731
        timestep = dataclasses.replace(
            timestep,
            reward=counted(timestep.reward),
            terminated=is_over & ~is_cut,
            truncated=is_cut,
            score=None if timestep.score is None else counted(timestep.score),
            team=flags,
        )
        return state, timestep

    def action_mask(self, state: Any) -> jax.Array:
        """bool[A, n]; an agent that is not present may do anything, since a policy needs a choice."""
        return self.env.action_mask(state) | ~self.env.present(state)[:, None]
