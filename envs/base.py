"""What an environment is: spaces, `EnvSpec`, `TimeStep` and the `JaxEnv` protocol.

A `JaxEnv` describes ONE environment and never resets itself. `envs.vector.VectorEnv` batches it,
resets what has ended and keeps the true final observation, so adapters stay a few lines long.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol, runtime_checkable

import flax.struct
import jax
import numpy as np


@dataclasses.dataclass(frozen=True)
class Discrete:
    """One integer action or observation in `[0, n)`."""

    n: int
    dtype: Any = np.int32

    @property
    def shape(self) -> tuple[int, ...]:
        return ()


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """A vector of integers; component `i` lies in `[0, nvec[i])`."""

    nvec: tuple[int, ...]
    dtype: Any = np.int32

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)


@dataclasses.dataclass(frozen=True)
class Box:
    """An array of `shape`; `low` and `high` are one tuple entry per element, flattened in C order."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: Any = np.float32

    @classmethod
    def of(cls, low: Any, high: Any, shape: tuple[int, ...], dtype: Any = np.float32) -> Box:
        """Builds a box from scalar or array bounds, broadcast to `shape`."""

        def flat(x: Any) -> tuple[float, ...]:
            array = np.broadcast_to(np.asarray(x, np.float64), shape)
            return tuple(float(v) for v in array.reshape(-1))

        return cls(flat(low), flat(high), tuple(int(n) for n in shape), dtype)

    @property
    def bounded(self) -> bool:
        """Whether every element has two finite bounds."""
        return all(math.isfinite(v) for v in self.low + self.high)


@dataclasses.dataclass(frozen=True)
class Dict:
    """Named sub-spaces, as a sorted tuple of pairs so that a spec can be hashed."""

    spaces: tuple[tuple[str, Space], ...]

    def __getitem__(self, name: str) -> Space:
        return dict(self.spaces)[name]


Space = Discrete | MultiDiscrete | Box | Dict


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """The static facts of an environment.

    Attributes:
      name: the full name it was made from, e.g. `gymnax:CartPole-v1`.
      observation_space: what `reset` and `step` return as `obs`.
      action_space: what `step` accepts.
      max_episode_steps: no episode is longer, by a time limit or because it always terminates by then;
        None where there is no such number.
      has_action_mask: whether `JaxEnv.action_mask` may be called.
    """

    name: str
    observation_space: Space
    action_space: Space
    max_episode_steps: int | None = None
    has_action_mask: bool = False


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
      info: environment-specific scalars; empty unless an environment documents otherwise.
    """

    obs: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    final_obs: Any = None
    info: dict[str, jax.Array] = flax.struct.field(default_factory=dict)

    @property
    def done(self) -> jax.Array:
        """bool: the episode ended here, in either way."""
        return self.terminated | self.truncated


@runtime_checkable
class JaxEnv(Protocol):
    """One environment as pure functions, without automatic reset."""

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
