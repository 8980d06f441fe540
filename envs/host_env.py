"""The interface of environments on the host: `HostEnv`, what it answers, and how a batch is started.

A `HostEnv` is a BATCH of C++ or Python environments that reset themselves on the step after an end.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from jaxrl.envs.base import EnvSpec


class HostEnvError(RuntimeError):
    """A host environment failed. The message is one line: environment, index, step and what happened."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HostStep:
    """The answers of environments to an action for each of N rows; arrays [N, ...] of numpy, or traced ones.

    A row is an environment, or an agent of one: environments of several have `len(spec.agents)` rows each.
    Environments reset on the NEXT step: the row after an end ignores its action and carries no transition,
    it only delivers the new episode's first observation (`first`). The row that ends an episode delivers
    its true final observation. Arrays may be overwritten by the next `send` to the same group.

    Where `first`, `obs` is the first of its episode, and nothing else in the row counts. So it is too while
    the row's agent is not there, where `obs` does not count either. A lost life can end the learner's episode
    (`terminated`) and not the game.
    """

    obs: Any  # tree of [N, ...], as the environment stores it; `HostEnv.decode` makes the spec's space of it
    reward: np.ndarray  # float32[N], what the learner gets; 0 where `first`
    terminated: np.ndarray  # bool[N]; False if `first`, as truncated
    truncated: np.ndarray
    first: np.ndarray  # bool[N]
    score: np.ndarray  # float32[N], the reward that episode statistics report: not clipped
    game_over: np.ndarray  # bool[N]; the episode that statistics report ended here
    # float32[N] by name, for `HostOptions.info_keys`; NaN if nothing is reported. Empty if there is a `team`.
    info: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    # Of environments of several agents, their steps as wholes, by which episodes are counted: without `obs`,
    # and with the sum of the rewards as `score`.
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
        """Sets the tasks of episodes that begin with the group's next step; not between `send` and `recv`.

        They are float64[B / G, F], by `HostOptions.task_names`; NaN leaves a number to the environment.
        """
        raise HostEnvError(f"{self.spec.name} takes no tasks")

    def recv(self, group: int) -> HostStep: ...

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


class StartedEnv(HostEnv, Protocol):
    """A `HostEnv` that decodes as the factory that has started it."""

    factory: HostFactory

    def decode(self, obs: Any) -> Any:
        return self.factory.decode(obs)

    def action_mask(self, obs: Any) -> Any:
        return self.factory.action_mask(obs)


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
        """Waits for the step; returns (the next handle, step, bool[N]: True if its observation is finite).

        Episodes begin with this row where `first`, bool[N]: the row before ended others.
        """
        ...

    def stepped(self, reward: np.ndarray, finite: np.ndarray) -> None:
        """Checks T steps of all groups that a program has made: HostEnvError if something was not finite.

        Of `reward`, float32[T, B], and `finite`, bool[T, B], as it came from `recv`.
        """
        ...


def group_environments(env: HostEnv, group: int) -> slice:
    size = env.num_envs // env.num_groups
    return slice(group * size, (group + 1) * size)


def group_rows(env: HostEnv, group: int) -> slice:
    """The rows of a group: its environments, or their agents."""
    size = env.num_envs // env.num_groups * env.spec.num_agents
    return slice(group * size, (group + 1) * size)


@dataclasses.dataclass(frozen=True)
class HostOptions:
    """Settings with which a batch of host environments is started."""

    seeds: tuple[int, ...]  # one per environment, integers in [0, 2^31)
    num_groups: int = 1  # divides the number of environments
    num_workers: int = 0  # processes, or threads of a pool, over all groups; 0 chooses by the cores
    timeout: float = 60.0  # seconds after which an environment that does not answer counts as hung
    # Per environment, cut its first episode off (`truncated`) after so many steps, so that environments with
    # a fixed time limit do not all end together; None leaves them alone.
    first_episode_steps: tuple[int, ...] | None = None
    info_keys: tuple[str, ...] = ()  # the entries of the environments' info that each step hands on
    task_names: tuple[str, ...] = ()  # the numbers that `HostEnv.deal` gives; empty: no tasks are chosen

    def __post_init__(self) -> None:
        if self.num_groups < 1 or not self.seeds or len(self.seeds) % self.num_groups:
            raise ValueError(f"num_groups (={self.num_groups}) must divide num_envs (={len(self.seeds)})")
        if self.num_workers < 0 or self.num_workers % self.num_groups:
            text = f"must be a multiple of num_groups (={self.num_groups})"
            raise ValueError(f"num_workers (={self.num_workers}) {text}")


class HostFactory(Protocol):
    """A host environment by name, checked but not started; it decodes as every `HostEnv` it starts."""

    spec: EnvSpec

    def decode(self, obs: Any) -> Any: ...

    def action_mask(self, obs: Any) -> Any: ...

    def require_info(self, key: str) -> None:
        """Raises ValueError if it is known that `key` will never be in the environments' info."""
        ...

    def start(self, options: HostOptions) -> HostEnv:
        """Starts a batch; HostEnvError if an environment failed while starting."""
        ...


class CentralHostFactory(HostFactory, Protocol):
    """A host environment of several agents with a state of the whole: it has `spec.central_observation`."""

    def with_central(self) -> CentralHostFactory:
        """The same, with the state of the whole in stored observations; `decode` leaves it out."""
        ...

    def central(self, obs: Any) -> Any:
        """An element of `spec.central_observation` for every row; only of `with_central`."""
        ...
