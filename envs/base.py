"""The interface of environments: spaces, `EnvSpec`, and the protocols `JaxEnv` (device) and `HostEnv` (host).

A `JaxEnv` describes ONE environment and never resets itself. `jaxrl.envs.vector.VectorEnv` batches it,
resets what has ended and keeps the true final observation, so adapters stay a few lines long.
A `HostEnv` is a BATCH of C++ or Python environments that reset themselves on the step after an end.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import flax.struct
import jax
import numpy as np

from jaxrl.envs.goals import GoalExamples, Goals, check_goal_space
from jaxrl.envs.reports import InfoMetric as InfoMetric
from jaxrl.envs.reports import check_reports
from jaxrl.envs.spaces import LARGE_IMAGE as LARGE_IMAGE
from jaxrl.envs.spaces import Box as Box
from jaxrl.envs.spaces import Dict as Dict
from jaxrl.envs.spaces import Discrete as Discrete
from jaxrl.envs.spaces import Mixed as Mixed
from jaxrl.envs.spaces import MultiDiscrete as MultiDiscrete
from jaxrl.envs.spaces import Space as Space
from jaxrl.envs.spaces import check_count, check_stack
from jaxrl.envs.spaces import has_large_images as has_large_images
from jaxrl.envs.spaces import is_large_image as is_large_image
from jaxrl.envs.spaces import zeros as zeros

_LONGEST_EPISODE = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """The static facts of an environment.

    Attributes:
      name: the full name it was made from, e.g. `gymnax:CartPole-v1`.
      observation_space: what `reset` and `step` return as `obs`.
      action_space: what `step` accepts; a `Dict` of Discrete, MultiDiscrete and Box parts is chosen as one
        vector (`Mixed`), and split before the environment's own `step`.
      max_episode_steps: no episode is longer, by a time limit or because it always terminates by then;
        None if there is no such number.
      has_action_mask: whether `action_mask` of the environment gives masks.
      reports: entries of `TimeStep.info` that are reported of every episode.
      reset_ratio: for an expensive `reset`. A `VectorEnv` of B environments that finds some ended computes
        B / `reset_ratio` resets at a time until all of these are reset; with 1 it computes B at once.
      task_space: what `reset` takes as a task, see `JaxEnv`; None for an environment without tasks.
      goals: what rewards and terminations other goals would have given (`jaxrl.envs.goals`); None where
        they do not follow from goals alone.
      goal_examples: of an environment on the host whose observations have goals, what it gave for some: a
        check of what others say of its goals. None elsewhere.
      stacked_frames: an observation is so many frames joined along its last axis, the oldest first. Each step
        brings one and drops the oldest; the first observation of an episode is its frame repeated, or goes
        on from the last of the episode before. So a memory need keep only the newest. 1: no stack.
      agents: the names of several agents that share one policy, see `jaxrl.envs.agents`; the spaces are those
        of one of them. Most environments have none, and one agent.
      central_observation: what `central` of an environment of several agents returns, the state of the whole;
        None where there is none.
      task_names: of several tasks for one policy (`jaxrl.envs.mixture`), whose observations tell their task
        and are normalised task by task; most environments have none.
      has_solver: whether `solve` of the environment tells the best action of a state.
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
      info: environment-specific scalars; empty unless an environment documents otherwise. It has those of
        `spec.reports` at every step.
      score: float32, the reward that episode statistics and evaluations report, where a wrapper has changed
        `reward`; None if the two are the same.
      team: in rows of environments of several agents (`jaxrl.envs.agents.AgentRows`) the step of the whole
        environment, by which episodes are counted; else None.
    """

    obs: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    final_obs: Any = None
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

    It may also have `render(state) -> uint8[height, width, 3]`, for films of episodes; and with
    `spec.has_solver` it has `solve(state) -> action`, the best action there, which may look at all of the
    state. Imitation learns from it.

    Where `spec.task_space` is set, an episode starts by `reset(key, task)`: the task, arrays of that space,
    says what this episode is to be (a level, how hard it is) and stays so to its end. Such an environment
    also has `default_task`, the task where nobody chooses one. Tasks are traced: another one compiles
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


class HostEnvError(RuntimeError):
    """A host environment failed. The message is one line: environment, index, step and what happened."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HostStep:
    """The answers of environments to an action for each of N rows; arrays [N, ...] of numpy, or traced ones.

    A row is an environment, or an agent of one: those of several have `len(spec.agents)` rows each, in order.
    Environments reset on the NEXT step: the row after an end ignores its action and carries no transition,
    it only delivers the new episode's first observation (`first`). The row that ends an episode delivers
    its true final observation. Arrays may be overwritten by the next `send` to the same group.

    Attributes:
      obs: tree of [N, ...], as the environment stores it; `HostEnv.decode` makes the spec's space of it.
      reward: float32[N], what the learner gets; 0 where `first`.
      terminated, truncated: bool[N]; False where `first`.
      first: bool[N]; `obs` is the first of its episode, and nothing else in this row counts. So it is too
        while the row's agent is not there, where `obs` does not count either.
      score: float32[N], the reward that episode statistics report: not clipped.
      game_over: bool[N]; the episode that statistics report ended here. A lost life can end the learner's
        episode (`terminated`) and not the game.
      info: float32[N] by name, those of `HostOptions.info_keys`; NaN where an environment says nothing.
        Rows where `first` do not count. Empty where there is a `team`.
      team: of environments of several agents, their steps as wholes, by which episodes are counted: without
        `obs`, and with the sum of the rewards as `score`. None of other environments.
    """

    obs: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    first: np.ndarray
    score: np.ndarray
    game_over: np.ndarray
    info: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    team: HostStep | None = None

    @property
    def done(self) -> np.ndarray:
        """bool[N]: the learner's episode ended here, in either way."""
        return self.terminated | self.truncated

    @property
    def of_environments(self) -> HostStep:
        """The steps by which episodes are counted: `team`, or of environments of one agent the rows."""
        return self if self.team is None else self.team


@runtime_checkable
class HostEnv(Protocol):
    """B environments on the host, in G groups of equal size that step independently.

    While one group steps, the policy can choose the actions of another. For every group `recv` comes
    first and delivers the first observations; then `send` and `recv` alternate; each group may have its own
    thread. Any method may raise HostEnvError, after which no process is left and only `close`
    may follow.

    Attributes:
      spec: of one environment.
      num_envs, num_groups: B and G. Of several agents a group has B / G * agents rows, see `HostStep`.
      timeout: seconds after which the caller of `recv` should take it for hung; None if `recv` raises.
    """

    spec: EnvSpec
    num_envs: int
    num_groups: int
    timeout: float | None

    def send(self, group: int, action: np.ndarray) -> None:
        """Starts a step of the group with actions [B / G, *A]; returns at once."""
        ...

    def deal(self, group: int, task: np.ndarray) -> None:
        """Says what episodes of the group are asked to be that begin with its next step.

        Args:
          group: not between `send` and `recv`.
          task: float64[B / G, F], by `HostOptions.task_names`; NaN leaves a number to the environment.
        """
        raise HostEnvError(f"{self.spec.name} takes no tasks")

    def recv(self, group: int) -> HostStep:
        """Waits for the group's step."""
        ...

    def decode(self, obs: Any) -> Any:
        """Turns `HostStep.obs`, with any leading dimensions, into observations of the spec's space.

        Pure JAX: what is cheaper on the device, such as moving the channels of images, happens there.
        """
        ...

    def action_mask(self, obs: Any) -> Any:
        """bool[..., A], the actions allowed at `HostStep.obs`; None if the environment has no masks."""
        return None

    def traced(self) -> TracedSteps | None:
        """The steps that a program compiled for the CPU can make itself; None if it cannot."""
        return None

    def interrupt(self) -> None:
        """Called from another thread: makes a `recv` that waits there fail, where that is possible."""
        ...

    def close(self) -> None:
        """Ends everything that was started; may be called twice."""
        ...


class TracedSteps(Protocol):
    """Steps of a `HostEnv` for compiled programs: once one has made some, Python must make no more.

    Attributes:
      handles: uint8[H] of each group, what puts its calls in order: each takes one and returns the next.
    """

    handles: list[np.ndarray]

    @property
    def is_ready(self) -> bool:
        """True once programs may step them; Python has to until then."""
        ...

    def send(self, group: int, handle: jax.Array, action: jax.Array) -> jax.Array:
        """Starts a step of the group with actions [N, *A]; returns the next handle. Traced, like `recv`."""
        ...

    def recv(self, group: int, handle: jax.Array, first: jax.Array) -> tuple[jax.Array, HostStep, jax.Array]:
        """Waits for the step.

        Args:
          group: which.
          handle: the last.
          first: bool[N], which episodes begin with this row: the row before ended others.

        Returns:
          (handle, step, bool[N]: True where its observation is finite).
        """
        ...

    def stepped(self, reward: np.ndarray, finite: np.ndarray) -> None:
        """Checks T steps of all groups that a program has made.

        Args:
          reward: float32[T, B].
          finite: bool[T, B], as it came from `recv`.

        Raises:
          HostEnvError: a reward or an observation was not finite.
        """
        ...


def group_environments(env: HostEnv, group: int) -> slice:
    """The environments of a group."""
    size = env.num_envs // env.num_groups
    return slice(group * size, (group + 1) * size)


def group_rows(env: HostEnv, group: int) -> slice:
    """The rows of a group: its environments, or their agents."""
    size = env.num_envs // env.num_groups * env.spec.num_agents
    return slice(group * size, (group + 1) * size)


@dataclasses.dataclass(frozen=True)
class HostOptions:
    """Settings with which a batch of host environments is started.

    Attributes:
      seeds: one per environment, integers in [0, 2^31); their number is the number of environments.
      num_groups: G; divides the number of environments.
      num_workers: processes (or threads of an environment pool) over all groups; 0 chooses by the cores.
      timeout: seconds after which an environment that does not answer counts as hung.
      first_episode_steps: per environment, cut its first episode off (`truncated`) after so many steps, so
        that environments with a fixed time limit do not all end together; None leaves them alone.
      info_keys: what of the environments' info each step hands on.
      task_names: the numbers that `HostEnv.deal` gives; empty: no tasks are chosen.
    """

    seeds: tuple[int, ...]
    num_groups: int = 1
    num_workers: int = 0
    timeout: float = 60.0
    first_episode_steps: tuple[int, ...] | None = None
    info_keys: tuple[str, ...] = ()
    task_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.num_groups < 1 or not self.seeds or len(self.seeds) % self.num_groups:
            raise ValueError(f"num_groups (={self.num_groups}) must divide num_envs (={len(self.seeds)})")
        if self.num_workers < 0 or self.num_workers % self.num_groups:
            raise ValueError(
                f"num_workers (={self.num_workers}) must be a multiple of num_groups (={self.num_groups})"
            )


class HostFactory(Protocol):
    """A host environment by name, checked but not started."""

    spec: EnvSpec

    def decode(self, obs: Any) -> Any:
        """The spec of every `HostEnv` it starts."""
        ...

    def action_mask(self, obs: Any) -> Any:
        """As that of every `HostEnv` it starts."""
        ...

    def require_info(self, key: str) -> None:
        """Raises ValueError if it is known that `key` will never be in the environments' info."""
        ...

    def start(self, options: HostOptions) -> HostEnv:
        """Starts a batch.

        Raises:
          HostEnvError: an environment failed while starting.
        """
        ...
