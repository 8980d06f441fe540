"""Episodes of host environments: counted while they are collected, and played whole for evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from jaxrl.algorithms import Agent
from jaxrl.envs.agents import row_keys
from jaxrl.envs.host_env import HostEnv, HostFactory, HostOptions, HostStep, group_environments, group_rows
from jaxrl.experience.episodes import DEFAULT_MAX_EPISODE_STEPS, Episodes
from jaxrl.experience.host.threads import Cancelled, Watch, attend
from jaxrl.experience.statistics import NO_REPORTS, SUCCESS, EpisodeReports
from jaxrl.types import Acting, Array, EpisodeRows, EpisodeTotals, PyTree, Tally


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
        task: PyTree = None,
    ) -> tuple[EpisodeTotals, EpisodeRows | None]:
        """Adds T steps of B environments; totals over the games that ended, and with tasks these one by one.

        Args:
          first, score, game_over, info: [T, B] of `HostStep`.
          task: tree of [T, B, ...], the task of each row's game.
        """
        place, games, tallies = self._ends_of(first, score, game_over, info)
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
        totals = EpisodeTotals(**jax.tree.map(np.float32, numbers))
        if task is None:
            return totals, None

        def put(values: Any, dtype: Any = np.float32) -> Any:
            rows = np.zeros(first.shape, dtype)
            rows[place] = values
            return rows

        reports = {label: put(tally.value) for label, tally in found.items()}
        no_first: Any = ~first
        return totals, EpisodeRows(
            ended=put(True, bool),
            done=game_over & no_first,
            task=task,
            episode_return=put(scores),
            length=put(lengths, np.int32),
            success=reports.get(SUCCESS),
            reports=reports,
            valid=no_first,
        )

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


class HostPlayer:
    """Plays episodes with one policy; its program is compiled once and serves every evaluation.

    Args:
      factory: of the environments, started afresh for every evaluation.
      reports: the values to record beside returns and lengths.
    """

    def __init__(
        self, agent: Agent, factory: HostFactory, sample: bool, reports: EpisodeReports = NO_REPORTS
    ):
        self._agent = agent
        self._factory = factory
        self._sample = sample
        self._reports = reports
        self._act = jax.jit(self._actions)

    def play(
        self,
        options: HostOptions,
        state: Acting,
        keys_E: Array,
        quota_E: np.ndarray,
        given_up: Callable[[], bool] = lambda: False,
    ) -> Episodes:
        """Lets each environment play exactly its quota of episodes, see `EpisodePlayer.play`.

        Episodes are the game's, with the scores that `HostStep` reports, of several agents the team's. If an
        environment states no time limit, an episode longer than `DEFAULT_MAX_EPISODE_STEPS` counts as
        unfinished; as it cannot be cut off, it is the last of its environment, and fewer episodes than asked
        for are reported as played.

        Args:
          options: how to start the environments, not staggered, with the `info_keys` of the reports.
          keys_E: for sampled actions.
          given_up: asked now and then; True if the result is not wanted any more.

        Returns:
          Arrays of numpy [E, max(quota_E)]. Errors are those of `attend`.
        """
        limit = self._factory.spec.max_episode_steps or DEFAULT_MAX_EPISODE_STEPS
        book = _Book(quota_E, limit, self._reports)
        env = self._factory.start(options)
        watch = Watch(env)
        attend(
            lambda cancelled: self._play(watch, book, state, keys_E, cancelled), watch.overdue, given_up, env
        )
        return book.episodes

    def _play(
        self, watch: Watch, book: _Book, state: Acting, keys_E: Array, cancelled: Callable[[], bool]
    ) -> None:
        env: HostEnv = watch.env
        rows = [group_rows(env, g) for g in range(env.num_groups)]
        carries = [self._agent.initial_carry(x.stop - x.start) for x in rows]
        keys_B = row_keys(env.spec, keys_E)
        while not book.finished:
            if cancelled():
                raise Cancelled
            for g in range(env.num_groups):
                step = watch.recv(g)
                book.count(group_environments(env, g), step.of_environments)
                # Copies, for the environment may overwrite its arrays while the device still reads them.
                obs, first = jax.tree.map(np.array, (step.obs, step.first))
                action, carries[g] = self._act(state, obs, carries[g], first, keys_B[rows[g]], book.steps)
                env.send(g, np.asarray(action))
            book.steps += 1

    def _actions(
        self, state: Acting, obs: PyTree, carry: PyTree, first: Array, keys_B: Array, t: Array
    ) -> tuple[Array, PyTree]:
        agent = self._agent
        mask = self._factory.action_mask(obs)
        out = agent.forward(state, self._factory.decode(obs), carry, first, mask)
        if not self._sample:
            return agent.to_env(agent.greedy(out)), out.carry
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_B, t)
        noise = jax.vmap(lambda key: agent.draw_noise(key, ()))(keys)
        return agent.to_env(agent.choose(out, noise)[0]), out.carry


class _Book:
    """The episodes played so far; see `Episodes` for the arrays."""

    def __init__(self, quota_E: np.ndarray, limit: int, reports: EpisodeReports):
        self._quota = np.array(quota_E)
        self._limit = limit
        self._reports = reports
        shape = (len(self._quota), int(self._quota.max()))
        self._score = np.zeros(shape)
        self._length = np.zeros(shape, np.int32)
        self._ended = np.zeros(shape, bool)
        self._tallies: dict[str, Tally] = {
            label: Tally(*np.zeros((2, *shape), np.float32)) for label, _ in reports.entries
        }
        self._slot = np.zeros(len(self._quota), int)
        self.steps = 0  # rows of each environment so far

    @property
    def finished(self) -> bool:
        return bool((self._slot >= self._quota).all())

    def count(self, group: slice, step: HostStep) -> None:
        """Counts a step of the environments of a group."""
        playing = ~step.first & (self._slot[group] < self._quota[group])
        environment = np.arange(group.start, group.stop)[playing]
        slot = self._slot[environment]
        self._score[environment, slot] += step.score[playing]
        self._length[environment, slot] += 1
        now = {label: Tally(x.value[environment, slot], x.count[environment, slot])
               for label, x in self._tallies.items()}  # fmt: skip
        info = {key: step.info[key][playing] for key in self._reports.info_keys}
        for label, tally in self._reports.add(now, info, np).items():
            for total, row in zip(*map(jax.tree.leaves, (self._tallies[label], tally)), strict=True):
                total[environment, slot] = row
        over = step.game_over[playing]
        self._ended[environment, slot] = over
        self._slot[environment] += over
        too_long = ~over & (self._length[environment, slot] >= self._limit)
        self._slot[environment] += too_long
        self._quota[environment[too_long]] = self._slot[environment[too_long]]

    @property
    def episodes(self) -> Episodes:
        played = np.arange(self._score.shape[1]) < self._quota[:, None]
        on_host: Any = (self._score.astype(np.float32), self._length, played, self._ended, self._tallies)
        return Episodes(*on_host)


def quotas(num_envs: int, episodes: int) -> np.ndarray:
    """int[E]: `episodes` divided over the environments as evenly as can be."""
    return np.full(num_envs, episodes // num_envs) + (np.arange(num_envs) < episodes % num_envs)
