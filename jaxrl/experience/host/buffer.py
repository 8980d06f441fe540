"""The buffer of the answers of environments on the host, and the book of their games in progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from jaxrl.envs.host_env import HostStep
from jaxrl.experience.statistics import NO_REPORTS, SUCCESS, EpisodeReports
from jaxrl.types import EpisodeRows, EpisodeTotals, PyTree, Tally

# The largest alignment any backend asks for before it reads a host array in place instead of copying it.
_ALIGNMENT = 64
# What is kept of a step besides the row that it led to: of rows, and of environments.
_TOLD = {"reward": np.float32, "terminated": bool, "truncated": bool}
_COUNTED = {"score": np.float32, "game_over": bool}


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


class EpisodeCounter:
    """Scores and lengths of the games in progress; a game may be several of the learner's episodes.

    Args:
      staggered: True if the first game of each environment is cut off and should not be reported.
    """

    def __init__(self, num_envs: int, staggered: bool, reports: EpisodeReports = NO_REPORTS):
        self._score = np.zeros(num_envs, np.float64)
        self._length = np.zeros(num_envs, np.int64)
        self._skip = np.full(num_envs, staggered)
        self._reports = reports
        self._tallies = reports.begin(num_envs, np)

    def count(
        self,
        first: np.ndarray,
        score: np.ndarray,
        game_over: np.ndarray,
        info: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> EpisodeTotals:
        """Adds T steps of B environments; totals over the games that ended, of numpy numbers.

        Args:
          first, score, game_over: [T, B] of `HostStep`.
          info: [T, B] by key, likewise.
        """
        _, games, tallies = self._ends_of(first, score, game_over, info)
        return self._totals(games, tallies)[0]

    def count_rows(
        self,
        first: np.ndarray,
        score: np.ndarray,
        game_over: np.ndarray,
        info: Mapping[str, np.ndarray],
        task: PyTree,
    ) -> tuple[EpisodeTotals, EpisodeRows]:
        """`count`, and the games one by one; `task` is a tree of [T, B, ...], the task of each row's game."""
        place, games, tallies = self._ends_of(first, score, game_over, info)
        totals, found = self._totals(games, tallies)

        def put(values: Any, dtype: Any = np.float32) -> Any:
            rows = np.zeros(first.shape, dtype)
            rows[place] = values
            return rows

        reports = {label: put(tally.value) for label, tally in found.items()}
        no_first: Any = ~first
        rows = EpisodeRows(
            ended=put(np.ones(len(games[0]), bool), bool),
            done=game_over & no_first,
            task=task,
            episode_return=put(games[0]),
            length=put(games[1], np.int32),
            success=reports.get(SUCCESS),
            reports=reports,
            valid=no_first,
        )
        return totals, rows

    def _ends_of(
        self, first: np.ndarray, score: np.ndarray, game_over: np.ndarray, info: Mapping[str, np.ndarray]
    ) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, dict[str, Tally]]:
        """((steps, environments), (score, length) in columns, tallies) of the games that ended."""
        scores = self._score + np.cumsum(np.where(first, 0.0, score), axis=0, dtype=np.float64)
        lengths = self._length + np.cumsum(~first, axis=0)
        is_over = game_over & ~first
        # One row for each game that ended, environment by environment.
        env, t = np.nonzero(is_over.T)
        is_next = env[1:] == env[:-1]
        ended = np.stack([scores[t, env], lengths[t, env]])
        games = ended.copy()
        games[:, 1:] -= np.where(is_next, ended[:, :-1], 0.0)
        skipped = self._skip[env]
        skipped[1:] &= ~is_next
        self._skip[env] = False
        # The totals of an environment's last game are subtracted from its sums.
        before = np.zeros((2, len(self._score)))
        before[:, env] = ended
        self._score = scores[-1] - before[0]
        self._length = lengths[-1] - before[1].astype(np.int64)
        tallies = self._tally(first, is_over, info) if self._reports.entries else {}
        tallies = {label: Tally(x.value[t, env], x.count[t, env]) for label, x in tallies.items()}
        return (t[~skipped], env[~skipped]), games[:, ~skipped], jax.tree.map(lambda x: x[~skipped], tallies)

    def _tally(
        self, first: np.ndarray, is_over: np.ndarray, info: Mapping[str, np.ndarray]
    ) -> dict[str, Tally]:
        """The totals of the games after each step; [T, B]."""
        steps = []
        for t in range(len(first)):
            said = {key: np.where(first[t], np.float32(np.nan), x[t]) for key, x in info.items()}
            found = self._reports.add(self._tallies, said, np)
            steps.append(found)
            self._tallies = jax.tree.map(lambda x, over=is_over[t]: np.where(over, np.float32(0), x), found)
        return jax.tree.map(lambda *x: np.stack(x), *steps)

    def _totals(self, games: np.ndarray, tallies: dict[str, Tally]) -> tuple[EpisodeTotals, dict[str, Tally]]:
        """Totals of the games, (score, length) in columns, and what their tallies were at their ends; what
        each said at last.
        """
        scores, lengths = games
        count = len(scores)
        found = self._reports.final_values(tallies, scores, lengths, np.ones(count, bool), np)
        numbers: dict[str, Any] = {
            "count": count,
            "episode_return": scores.sum(),
            "length": lengths.sum(),
            "squares": np.square(scores - scores.mean()).sum() if count else 0.0,
            "lowest": scores.min() if count else np.inf,
            "highest": scores.max() if count else -np.inf,
            "tallies": jax.tree.map(np.sum, found),
        }
        return EpisodeTotals(**jax.tree.map(np.float32, numbers)), found
