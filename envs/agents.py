"""Environments of several agents that share one policy: each agent is a row of the batch."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.vector import VectorEnv, VectorState


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
    """The meaning of a step for each agent, bool[A]: was it present before, and its own flags."""

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
        return state, dataclasses.replace(
            timestep,
            reward=counted(timestep.reward),
            terminated=is_over & ~is_cut,
            truncated=is_cut,
            score=None if timestep.score is None else counted(timestep.score),
            team=flags,
        )

    def action_mask(self, state: Any) -> jax.Array:
        """bool[A, n]; an agent that is not present may do anything, since a policy needs a choice."""
        return self.env.action_mask(state) | ~self.env.present(state)[:, None]


class AgentRows:
    """Steps N environments of A agents each, with the interface of a `VectorEnv` of B = N * A rows.

    Row `b` is agent `b % A` of environment `b // A`: a device that holds a multiple of A rows holds whole
    environments. An environment takes the key of its first row. All start anew together, once the episode of
    the environment is over; a row whose agent is not present until then is no turn (`is_turn`), its reward is
    0, and neither flag is set in it.

    Args:
      env: the environment; every A rows are a copy of it.
      stagger, few_kernels: as of `VectorEnv`; whole environments are cut off.
    """

    def __init__(self, env: MultiAgentEnv, stagger: bool = False, few_kernels: bool = False):
        self.env = env
        self.spec = env.spec
        self._agents = env.spec.num_agents
        self._whole = VectorEnv(WholeEnv(env), stagger, few_kernels)
        self.resets_in_rounds = self._whole.resets_in_rounds
        self.staggered = self._whole.staggered

    def reset(self, keys_B: jax.Array, task_B: Any = None) -> tuple[VectorState, Any]:
        state, obs = self._whole.reset(keys_B[:: self._agents], task_B)
        return state, self._rows(obs)

    def starts(self, keys_B: jax.Array, task_B: Any = None) -> tuple[Any, Any]:
        return self._whole.starts(keys_B[:: self._agents], task_B)

    def step(
        self,
        keys_B: jax.Array,
        state: VectorState,
        action_B: jax.Array,
        starts: tuple[Any, Any] | None = None,
        task_B: Any = None,
    ) -> tuple[VectorState, TimeStep]:
        """`team` of each row is its environment's step: the sum of the rewards, its own flags and info."""
        action_NA = jax.tree.map(lambda x: x.reshape(-1, self._agents, *x.shape[1:]), action_B)
        state, whole = self._whole.step(keys_B[:: self._agents], state, action_NA, starts, task_B)
        flags = whole.team
        assert isinstance(flags, Flags)
        # A first episode that is cut off early ends for all who are still in it.
        cut_NA = flags.took_part & whole.done[:, None] & ~(flags.terminated | flags.truncated)
        team = TimeStep(
            obs=None,
            reward=whole.reported_reward.sum(axis=1),
            terminated=whole.terminated,
            truncated=whole.truncated,
            info=whole.info,
        )
        return state, TimeStep(
            obs=self._rows(whole.obs),
            reward=self._rows(whole.reward),
            terminated=self._rows(flags.terminated),
            truncated=self._rows(flags.truncated | cut_NA),
            final_obs=self._rows(whole.final_obs),
            final_mask=self._rows(whole.final_mask),
            score=self._rows(whole.score),
            team=jax.tree.map(lambda x: jnp.repeat(x, self._agents, axis=0), team),
        )

    def select(self, mask_B: jax.Array, on_true: Any, on_false: Any) -> Any:
        raise ValueError(f"{self.spec.name}: the agents of an environment stand and go together")

    def action_mask(self, state: VectorState) -> jax.Array | None:
        """bool[B, n]; all True if an agent is not present. None if the environment has no masks."""
        mask = self._whole.action_mask(state)
        return None if mask is None else self._rows(mask)

    def solve(self, state: VectorState) -> jax.Array:
        raise ValueError(f"{self.spec.name}: there is no solver for several agents")

    def is_turn(self, state: VectorState) -> jax.Array:
        """bool[B], whether the row's agent takes part in the next step."""
        return self._rows(jax.vmap(self.env.present)(state.env))

    def _rows(self, tree_NA: Any) -> Any:
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree_NA)


def of_environments(spec: EnvSpec, timestep: TimeStep) -> TimeStep:
    """The steps [N] of environments, by which episodes are counted, from the steps of rows [B].

    Of environments of one agent these are the rows, as they are.
    """
    if timestep.team is None:
        return timestep
    return jax.tree.map(lambda x: x[:: spec.num_agents], timestep.team)


def row_keys(spec: EnvSpec, keys_N: jax.Array) -> jax.Array:
    """A key for each row [B], from one for each environment; the same ones if these have one agent."""
    if not spec.agents:
        return keys_N
    return jax.vmap(lambda key: jax.random.split(key, spec.num_agents))(keys_N).reshape(-1)
