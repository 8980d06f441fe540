"""The parts of a rollout of host environments: compiled programs, and the buffer of answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms import Agent
from jaxrl.envs.host_env import HostStep
from jaxrl.types import Acting, Array, PyTree

# The largest alignment any backend asks for before it reads a host array in place instead of copying it.
_ALIGNMENT = 64
# What is kept of a step besides the row that it led to: of rows, and of environments.
_TOLD = {"reward": np.float32, "terminated": bool, "truncated": bool}
_COUNTED = {"score": np.float32, "game_over": bool}


@flax.struct.dataclass
class Chosen:
    """The choices of the agent in the rows of one group of N environments.

    Attributes:
      action, extras: [T, N, ...], of `Agent.choose`.
      bootstrap: tree of [T, N, ...], `Agent.bootstrap` of each row; None if the agent asks for nothing.
      carries: tree of [T / L, N, ...], the carry before each chunk.
    """

    action: Array
    extras: PyTree
    bootstrap: PyTree
    carries: PyTree


@flax.struct.dataclass
class GroupLoop:
    """The part of a rollout of N environments that the device keeps during it.

    Attributes:
      t: int32[], the row that comes next.
      carry: tree of [N, ...], before that row.
      noise: tree of [T, N, ...], of the actions.
    """

    t: Array
    carry: PyTree
    noise: PyTree
    chosen: Chosen


@dataclass(frozen=True)
class GroupPrograms:
    """The compiled parts of a rollout; N environments of one group each.

    Attributes:
      decode, action_mask: of the environments.
      length: T.
      chunk: L.
    """

    agent: Agent
    decode: Callable[[PyTree], PyTree]
    action_mask: Callable[[PyTree], Array | None]
    length: int
    chunk: int

    def noise(self, keys_N: Array, index_N: Array) -> PyTree:
        """[T, N, ...] for the actions: the noise that a device collector samples with the same keys."""
        _, noise_keys_N = jax.vmap(jax.random.split, out_axes=1)(keys_N)
        draw = lambda key, index: self.agent.draw_noise(key, (self.length,), index)  # noqa: E731
        return jax.vmap(draw, out_axes=1)(noise_keys_N, index_N)

    def begin(
        self, keys_N: Array, index_N: Array, carry: PyTree, acting: Acting, obs: PyTree, first: Array
    ) -> GroupLoop:
        """The state before row 0."""
        noise = self.noise(keys_N, index_N)

        def empty(count: int, tree: PyTree) -> PyTree:
            return jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), tree)

        # Only shapes and dtypes of these are used.
        out = self.act(acting, carry, obs, first)
        action, extras = self.agent.choose(out, jax.tree.map(lambda x: x[0], noise))
        return GroupLoop(
            t=jnp.zeros((), jnp.int32),
            carry=jax.tree.map(jnp.copy, carry),
            noise=noise,
            chosen=Chosen(
                action=empty(self.length, action),
                extras=empty(self.length, extras),
                bootstrap=empty(self.length, self.agent.bootstrap(out)),
                carries=empty(self.length // self.chunk, carry),
            ),
        )

    def step(self, loop: GroupLoop, acting: Acting, obs: PyTree, first: Array) -> tuple[GroupLoop, Array]:
        """Consumes one row; returns the actions for the environments."""
        t = loop.t
        chosen = loop.chosen
        out = self.act(acting, loop.carry, obs, first)
        action, extras = self.agent.choose(out, jax.tree.map(lambda x: x[t], loop.noise))

        def keep(kept: Array, x: Array) -> Array:
            return kept.at[t // self.chunk].set(jnp.where(t % self.chunk == 0, x, kept[t // self.chunk]))

        def write(kept: PyTree, row: PyTree) -> PyTree:
            return jax.tree.map(lambda all_rows, x: all_rows.at[t].set(x), kept, row)

        chosen = Chosen(
            action=write(chosen.action, action),
            extras=write(chosen.extras, extras),
            bootstrap=write(chosen.bootstrap, self.agent.bootstrap(out)),
            carries=jax.tree.map(keep, chosen.carries, loop.carry),
        )
        after = dataclasses.replace(loop, t=t + 1, carry=out.carry, chosen=chosen)
        return after, self.agent.to_env(action)

    def last(self, loop: GroupLoop, acting: Acting, obs: PyTree, first: Array) -> PyTree:
        """`Agent.bootstrap` [N, ...] of the observation after the rollout; the carry stays before it."""
        return self.agent.bootstrap(self.act(acting, loop.carry, obs, first))

    def finish(self, groups: list[Chosen], lasts: list[PyTree], cut_TB: Array) -> dict[str, Any]:
        """The fields of a `Trajectory` that the agent makes, groups joined; `cut_TB`: only truncated."""

        def join(*parts: Array) -> Array:
            return jnp.concatenate(parts, axis=1)

        last = jax.tree.map(lambda *parts: jnp.concatenate(parts), *lasts)
        rows = jax.tree.map(join, *(chosen.bootstrap for chosen in groups))

        def after(rows_TB: Array, last_B: Array) -> Array:
            # The row after a truncation is the final observation, consumed with the live carry.
            following = jnp.concatenate([rows_TB[1:], last_B[None]])
            cut = cut_TB.reshape(*cut_TB.shape, *[1] * (following.ndim - 2))
            return jnp.where(cut, following, jnp.zeros((), following.dtype))

        return {
            "action": join(*(chosen.action for chosen in groups)),
            "extras": jax.tree.map(join, *(chosen.extras for chosen in groups)),
            "bootstrap": jax.tree.map(after, rows, last),
            "carry": jax.tree.map(join, *(chosen.carries for chosen in groups)),
            "last": last,
        }

    def act(self, acting: Acting, carry: PyTree, obs: PyTree, first: Array) -> Any:
        """The agent's output at a row [N, ...] as the environment stores it."""
        return self.agent.forward(acting, self.decode(obs), carry, first, self.action_mask(obs))


@dataclass(frozen=True)
class Buffer:
    """B rows of E environments as they come from the host, in the dtypes of the environment.

    Attributes:
      obs: tree of [T + 1, B, ...].
      first: bool[T + 1, B], True if that observation is the first of its episode.
      reward, terminated, truncated: [T, B], what followed from the action at that row.
      score, game_over: [T, E], likewise, of the environments.
      begun: bool[T, E], True if they began an episode instead.
      info: float32[T, E] by key.
    """

    obs: PyTree
    first: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    score: np.ndarray
    game_over: np.ndarray
    begun: np.ndarray
    info: dict[str, np.ndarray]

    @classmethod
    def like(
        cls, obs: PyTree, length: int, num_envs: int, num_agents: int = 1, info_keys: Iterable[str] = ()
    ) -> Buffer:
        """An empty buffer for observations like one group's [N, ...]."""
        rows = num_envs * num_agents
        return cls(
            jax.tree.map(lambda x: _allocate((length + 1, rows, *x.shape[1:]), x.dtype), obs),
            np.zeros((length + 1, rows), bool),
            **{name: np.zeros((length, rows), dtype) for name, dtype in _TOLD.items()},
            **{name: np.zeros((length, num_envs), dtype) for name, dtype in _COUNTED.items()},
            begun=np.zeros((length, num_envs), bool),
            info={key: np.zeros((length, num_envs), np.float32) for key in info_keys},
        )

    def successor(self) -> Buffer:
        """A new buffer that begins with the last row of this one."""
        length, num_envs = self.score.shape
        agents = self.reward.shape[1] // num_envs
        after = self.like(jax.tree.map(lambda x: x[0], self.obs), length, num_envs, agents, self.info)
        for new, old in zip(
            jax.tree.leaves((after.obs, after.first)), jax.tree.leaves((self.obs, self.first)), strict=True
        ):
            new[0] = old[-1]
        return after

    def write(self, t: int, rows: slice, environments: slice, step: HostStep) -> None:
        """Stores what the action at row t - 1 of a group led to; at row 0 there was none."""
        for kept, new in zip(jax.tree.leaves(self.obs), jax.tree.leaves(step.obs), strict=True):
            kept[t, rows] = new
        self.first[t, rows] = step.first
        if t > 0:
            for name in _TOLD:
                getattr(self, name)[t - 1, rows] = getattr(step, name)
            counted = step.of_environments
            for name in _COUNTED:
                getattr(self, name)[t - 1, environments] = getattr(counted, name)
            self.begun[t - 1, environments] = counted.first
            for key, kept in self.info.items():
                kept[t - 1, environments] = counted.info[key]

    def observations(self, t: int, rows: slice) -> tuple[PyTree, np.ndarray]:
        """(observations, whether they are first) of a group at row t."""
        return jax.tree.map(lambda x: x[t, rows], self.obs), self.first[t, rows]


def _allocate(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialised array that JAX on CPU can use without a copy."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)
