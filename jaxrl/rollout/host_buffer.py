"""Where the host runtime keeps what environments answer, and its book of the games in progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from envs.base import HostStep
from jaxrl.types import PyTree

# The largest alignment any backend asks for before it reads a host array in place instead of copying it.
_ALIGNMENT = 64


@dataclass(frozen=True)
class Buffer:
    """Rows of B environments as they come from the host, in the dtypes of the environment.

    Attributes:
      obs: tree of [T + 1, B, ...].
      first: bool[T + 1, B], whether that observation is the first of its episode.
      reward, terminated, truncated: [T, B], what followed from the action at that row.
    """

    obs: PyTree
    first: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    @classmethod
    def like(cls, obs: PyTree, length: int, num_envs: int) -> Buffer:
        """An empty buffer for observations such as those of one group [N, ...]."""
        flags = [np.zeros((length, num_envs), bool) for _ in range(2)]
        return cls(
            jax.tree.map(lambda x: _aligned((length + 1, num_envs, *x.shape[1:]), x.dtype), obs),
            np.zeros((length + 1, num_envs), bool),
            np.zeros((length, num_envs), np.float32),
            *flags,
        )

    def successor(self) -> Buffer:
        """A new buffer that begins with the last row of this one."""
        length, num_envs = self.reward.shape
        after = self.like(jax.tree.map(lambda x: x[0], self.obs), length, num_envs)
        for new, old in zip(
            jax.tree.leaves((after.obs, after.first)), jax.tree.leaves((self.obs, self.first)), strict=True
        ):
            new[0] = old[-1]
        return after

    def write(self, t: int, rows: slice, step: HostStep) -> None:
        """Stores what the action at row t - 1 led to; at row 0 there was none."""
        for kept, new in zip(jax.tree.leaves(self.obs), jax.tree.leaves(step.obs), strict=True):
            kept[t, rows] = new
        self.first[t, rows] = step.first
        if t > 0:
            self.reward[t - 1, rows] = step.reward
            self.terminated[t - 1, rows] = step.terminated
            self.truncated[t - 1, rows] = step.truncated

    def seen(self, t: int, rows: slice) -> tuple[PyTree, np.ndarray]:
        """(observations, whether they are first) of a group at row t."""
        return jax.tree.map(lambda x: x[t, rows], self.obs), self.first[t, rows]


def _aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialised array that JAX on CPU can use without a copy."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


class GameBook:
    """Scores and lengths of the games in progress; a game may be several of the learner's episodes."""

    def __init__(self, num_envs: int, staggered: bool):
        self._score = np.zeros(num_envs, np.float64)
        self._length = np.zeros(num_envs, np.int64)
        self._skip = np.full(num_envs, staggered)

    def count(self, rows: slice, step: HostStep, totals: np.ndarray) -> None:
        """Adds one step; what ended is added to `totals`: number, scores, lengths."""
        score, length, skip = self._score[rows], self._length[rows], self._skip[rows]
        score += np.where(step.first, 0.0, step.score)
        length += ~step.first
        over = step.game_over & ~step.first
        if over.any():
            counted = over & ~skip
            totals += counted.sum(), score[counted].sum(), length[counted].sum()
            score[over] = 0.0
            length[over] = 0
            skip &= ~over
