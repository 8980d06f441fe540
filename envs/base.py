"""The interface of environments: spaces, `EnvSpec`, and the protocol `JaxEnv` of device environments.

A `JaxEnv` describes ONE environment and never resets itself. `jaxrl.envs.vector.VectorEnv` batches it,
resets what has ended and keeps the true final observation, so adapters stay a few lines long.
Environments on the host are in `jaxrl.envs.host_env`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import flax.struct
import jax

from jaxrl.envs.goals import GoalExamples, Goals, check_goal_space
from jaxrl.envs.pictures import has_large_images as has_large_images
from jaxrl.envs.pictures import is_large_image as is_large_image
from jaxrl.envs.reports import InfoMetric as InfoMetric
from jaxrl.envs.reports import check_reports
from jaxrl.envs.spaces import Box as Box
from jaxrl.envs.spaces import Dict as Dict
from jaxrl.envs.spaces import Discrete as Discrete
from jaxrl.envs.spaces import Mixed as Mixed
from jaxrl.envs.spaces import MultiDiscrete as MultiDiscrete
from jaxrl.envs.spaces import Space as Space
from jaxrl.envs.spaces import check_count, check_stack
from jaxrl.envs.spaces import zeros as zeros

_LONGEST_EPISODE = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """The static facts of an environment.

    Attributes:
      name: the full name it was made from, e.g. `gymnax:CartPole-v1`.
      observation_space: of `obs`, which `reset` and `step` return.
      action_space: what `step` accepts; a `Dict` of Discrete, MultiDiscrete and Box parts is chosen as one
        vector (`Mixed`), and split before the environment's own `step`.
      max_episode_steps: no episode is longer, by a time limit or because it always terminates by then;
        None if there is no such number.
      has_action_mask: True if `action_mask` of the environment gives masks.
      reports: entries of `TimeStep.info` that are reported of every episode.
      reset_ratio: for an expensive `reset`. A `VectorEnv` of B environments that finds some ended computes
        B / `reset_ratio` resets at a time until all of these are reset; with 1 it computes B at once.
      task_space: of the tasks that `reset` takes, see `JaxEnv`; None for an environment without tasks.
      goals: the rewards and terminations that other goals would give (`jaxrl.envs.goals`); None if
        they do not follow from goals alone.
      goal_examples: of an environment on the host whose observations have goals, what it gave for some, to
        check `Goals` that others declare for it. None elsewhere.
      stacked_frames: an observation is so many frames joined along its last axis, the oldest first. Each step
        brings one and drops the oldest; the first observation of an episode is its frame repeated, or
        continues from the last of the episode before. So a memory need keep only the newest. 1: no stack.
      agents: the names of several agents that share one policy, see `jaxrl.envs.agents`; the spaces belong
        to one agent. Most environments have no names, and one agent.
      open_info: True if nobody knows beforehand which entries `info` will hold: of environments that worker
        processes step.
      central_observation: what `central` of an environment of several agents returns, the global state;
        None if there is none.
      task_names: of several tasks for one policy (`jaxrl.envs.mixture`), whose observations tell their task
        and are normalised task by task; most environments have none.
      has_solver: True if `solve` of the environment tells the best action of a state.
      counts_from_zero: of a device environment, True once `jaxrl.envs.make` has seen to it that integers are
        counted from 0, whatever the `start` of their spaces; what is built on that environment does so too.
    """

    name: str
    observation_space: Space
    action_space: Space
    max_episode_steps: int | None = None
    has_action_mask: bool = False
    reports: tuple[InfoMetric, ...] = ()
    reset_ratio: int = 1
    task_space: Space | None = None
    goals: Goals | None = None
    goal_examples: GoalExamples | None = None
    stacked_frames: int = 1
    task_names: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    has_solver: bool = False
    central_observation: Space | None = None
    counts_from_zero: bool = False
    open_info: bool = False

    def __post_init__(self) -> None:
        if self.goals is not None:
            check_goal_space("EnvSpec.goals", self.observation_space)
        check_reports("EnvSpec.reports", self.reports)
        check_stack("EnvSpec.stacked_frames", self.stacked_frames, self.observation_space)
        if len(set(self.agents)) < len(self.agents):
            raise ValueError(f"EnvSpec.agents (={self.agents!r}) must be names that differ")
        check_count("EnvSpec.reset_ratio", self.reset_ratio, _LONGEST_EPISODE)
        if self.max_episode_steps is not None:
            check_count("EnvSpec.max_episode_steps", self.max_episode_steps, _LONGEST_EPISODE)

    @property
    def num_agents(self) -> int:
        """Rows of a batch that one environment takes."""
        return max(1, len(self.agents))

    @property
    def mask_size(self) -> int:
        """Length of an action mask."""
        assert isinstance(self.action_space, Discrete | MultiDiscrete)
        return self.action_space.num_choices


@flax.struct.dataclass
class TimeStep:
    """The result of one step; unbatched from a `JaxEnv`, with a leading `B` from a `VectorEnv`.

    Attributes:
      obs: the observation to act on next. From a `JaxEnv` the true successor; from a `VectorEnv`
        the first observation of the next episode where this one has ended.
      reward: float32.
      terminated: bool; the episode reached a terminal state (bootstrap value 0).
      truncated: bool; it was cut off (bootstrap with the value of `final_obs`). Both flags may be
        True at once: termination wins.
      final_obs: from a `VectorEnv` the true successor observation; None from a `JaxEnv`.
      final_mask: from a `VectorEnv` with action masks the true successor's mask, bool[B, n]; all True where
        an episode ends and nothing is allowed. None elsewhere.
      info: environment-specific scalars; empty unless an environment documents otherwise. It has the entries
        of `spec.reports` at every step.
      score: float32, the reward that episode statistics and evaluations report, if a wrapper has changed
        `reward`; None if the two are the same.
      team: in rows of environments of several agents (`jaxrl.envs.agents.AgentRows`) the step of the whole
        environment, by which episodes are counted; else None.
    """

    obs: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    final_obs: Any = None
    final_mask: Any = None
    info: dict[str, jax.Array] = flax.struct.field(default_factory=dict)
    score: jax.Array | None = None
    team: Any = None

    @property
    def reported_reward(self) -> jax.Array:
        """float32: `score`, or `reward` if there is none."""
        return self.reward if self.score is None else self.score

    @property
    def done(self) -> jax.Array:
        """bool: the episode ended here, in either way."""
        return self.terminated | self.truncated


@runtime_checkable
class JaxEnv(Protocol):
    """One environment as pure functions, without automatic reset.

    It may also have `render(state) -> uint8[height, width, 3]`, for videos of episodes; and with
    `spec.has_solver` it has `solve(state) -> action`, the best action there, which may look at all of the
    state. Imitation learns from it.

    If `spec.task_space` is set, an episode starts by `reset(key, task)`: the task, arrays of that space,
    defines this episode (a level, how hard it is) until its end. Such an environment
    also has `default_task`, the task if none is chosen. Tasks are traced: another one compiles
    nothing.
    """

    spec: EnvSpec

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        """Starts an episode; returns `(state, obs)`."""
        ...

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        """Advances by one step; returns `(state, timestep)`; never resets."""
        ...

    def action_mask(self, state: Any) -> jax.Array:
        """bool[n] (or bool[sum(nvec)]): the actions allowed in `state`. Only with `spec.has_action_mask`."""
        # Two statements: a type checker takes a lone `raise` for an abstract method.
        message = f"{self.spec.name} has no action mask"
        raise NotImplementedError(message)
