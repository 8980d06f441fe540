"""Reports of episodes: their returns and lengths, and values that the environment reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config.sections import Success
from jaxrl.envs.base import EnvSpec, InfoMetric
from jaxrl.envs.reports import entry, joined_key
from jaxrl.types import Array, Axis, EpisodeRows, EpisodeStats, EpisodeTotals, PyTree, Tally

SUCCESS = "success_rate"
# An environment that reports one of these says so when an episode is a success. The second is
# Stable-Baselines3's: its value at the end of an episode counts, even if no environment declares it.
_OF_SB3 = InfoMetric("is_success", "last")
_SUCCESS_KEYS = ("success", _OF_SB3.name)


@dataclass(frozen=True)
class EpisodeReports:
    """The values that are reported of episodes beside their returns and lengths.

    Attributes:
      entries: (label, the entry of the environment's info and what becomes of it in an episode).
      success: when an episode is a success, or None: nothing is known of it. With a rule on an entry of info,
        an episode that never reports the entry is none.
      is_declared: True if the environment declares the entry that `success` is about. If not, and none of
        many episodes reports it, nothing is known of their success.
      is_assumed: True if nobody asked for `success`: environments with Stable-Baselines3's info report it,
        others do not. As there, episodes that report nothing are left out.
    """

    entries: tuple[tuple[str, InfoMetric], ...] = ()
    success: Success | None = None
    is_declared: bool = True
    is_assumed: bool = False

    @classmethod
    def of(cls, spec: EnvSpec, success: str = "") -> EpisodeReports:
        """The reports that the environment declares, and the configuration's rule of success, if any."""
        entries = {report.name: report for report in spec.reports}
        rule: Success | None = None
        is_declared = True
        declared = next((key for key in _SUCCESS_KEYS if key in entries), None)
        is_assumed = spec.open_info and not success and declared is None
        if success:
            rule = Success.parse(success, "env.success")
            is_declared = declares(spec, rule)
            if rule.is_info:
                entries[SUCCESS] = InfoMetric(rule.subject, "max")
        elif declared is not None:
            rule = Success.parse(f"info.{declared}", "")
            entries[SUCCESS] = entries.pop(declared)
        elif is_assumed:
            rule = Success.parse(f"info.{_OF_SB3.name}", "")
            is_declared = False
            entries[SUCCESS] = _OF_SB3
        return cls(tuple(entries.items()), rule, is_declared, is_assumed)

    def with_success_of(self, other: EpisodeReports) -> EpisodeReports:
        """These entries, and the other's success."""
        of_success = tuple((label, report) for label, report in other.entries if label == SUCCESS)
        return replace(other, entries=(*self.entries, *of_success))

    @property
    def knows_success(self) -> bool:
        """True if every episode is a success or none; False if it may never be reported."""
        return self.success is not None and not self.is_assumed

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of everything that is reported, as in `env/LABEL`."""
        return tuple(sorted({*dict(self.entries), *([SUCCESS] if self.success else [])}))

    @property
    def info_keys(self) -> tuple[str, ...]:
        """The entries of the environment's info that are needed."""
        return tuple(sorted({report.name for _, report in self.entries}))

    def select(self, info: Mapping[str, Array]) -> dict[str, Array]:
        """float32 of what `add` needs of a step's info, on the device."""
        joined = {joined_key(report.name, report.per_episode) for _, report in self.entries} & info.keys()
        return {key: info[key].astype(jnp.float32) for key in sorted({*self.info_keys, *joined})}

    def begin(self, num_envs: int, xp: ModuleType = jnp) -> dict[str, Tally]:
        """The tallies [B] at the beginning of an episode, of numpy's or of JAX's arrays."""
        zeros = xp.zeros(num_envs, np.float32)
        return {label: Tally(zeros, zeros) for label, _ in self.entries}

    def add(
        self, tallies: Mapping[str, Tally], info: Mapping[str, Any], xp: ModuleType = jnp
    ) -> dict[str, Tally]:
        """The tallies [B] after one more step, at which the environments said `info`; float32[B] by key."""
        return {
            label: _add(report.per_episode, tallies[label], entry(info, report), xp)
            for label, report in self.entries
        }

    def final_values(
        self,
        tallies: Mapping[str, Tally],
        episode_return: Any,
        length: Any,
        counted: Any,
        xp: ModuleType = jnp,
    ) -> dict[str, Tally]:
        """The final values of episodes by label; value and count are 0 unless `counted`; all [B]."""
        values = {}
        for label, report in self.entries:
            tally = tallies[label]
            mean = report.per_episode == "mean"
            value = tally.value / xp.maximum(tally.count, 1) if mean else tally.value
            values[label] = (value, counted & (tally.count > 0))
        if self.success is not None:
            own = {"return": (episode_return, counted), "length": (length.astype(np.float32), counted)}
            value, said = values[SUCCESS] if self.success.is_info else own[self.success.subject]
            is_one = self.success.compare(value, self.success.bound) & said
            values[SUCCESS] = (is_one, said if self.is_assumed else counted)
        return {
            label: Tally(xp.where(known, value.astype(np.float32), 0), known.astype(np.float32))
            for label, (value, known) in values.items()
        }

    def success_of(self, info: Mapping[str, np.ndarray], reward: np.ndarray) -> bool | None:
        """True if a whole episode is a success, by float32[T] of its steps; None if nothing is known."""
        tallies = self.begin(1, np)
        for t in range(len(reward)):
            tallies = self.add(tallies, {key: x[t : t + 1] for key, x in info.items()}, np)
        score = reward.sum(keepdims=True)
        ended = self.final_values(tallies, score, np.array([len(reward)]), np.ones(1, bool), np)
        found = ended.get(SUCCESS)
        return None if found is None or found.count[0] == 0 else bool(found.value[0] > 0)


NO_REPORTS = EpisodeReports()


def declares(spec: EnvSpec, rule: Success) -> bool:
    """True unless the rule is about an entry of info that the environment does not declare."""
    return not rule.is_info or rule.subject in {report.name for report in spec.reports}


def _add(per_episode: str, tally: Tally, said: Any, xp: ModuleType) -> Tally:
    is_said = said == said  # NaN says nothing
    if per_episode in ("sum", "mean"):
        value = tally.value + xp.where(is_said, said, 0)
    elif per_episode == "max":
        value = xp.where(is_said & ((tally.count == 0) | (said > tally.value)), said, tally.value)
    else:
        value = xp.where(is_said, said, tally.value)
    return Tally(value.astype(np.float32), tally.count + is_said.astype(np.float32))


def no_totals(reports: EpisodeReports, count: int) -> EpisodeTotals:
    """Totals of [count] devices, for shapes and dtypes: no episode ended."""
    zeros = jnp.zeros(count)
    return EpisodeTotals(
        count=zeros,
        episode_return=zeros,
        length=zeros,
        squares=zeros,
        lowest=zeros,
        highest=zeros,
        tallies={label: Tally(zeros, zeros) for label in reports.labels},
    )


@flax.struct.dataclass
class _Counting:
    """Before a step; [B]: the episodes in progress, and sums over those that ended."""

    episode: EpisodeStats
    count: Array
    episode_return: Array
    length: Array
    tallies: dict[str, Tally]


def count_episodes(
    reports: EpisodeReports,
    episode: EpisodeStats,
    reward_TB: Array,
    done_TB: Array,
    info_TB: Mapping[str, Array],
    valid_TB: Array | None = None,
    task_TB: PyTree = None,
    unroll: int = 1,
) -> tuple[EpisodeStats, EpisodeTotals, EpisodeRows | None]:
    """Adds up a rollout that has been collected; step by step in it, each would take longer.

    Args:
      episode: the episodes in progress before it.
      reward_TB: float32, the reward that is reported.
      done_TB: bool, True if an episode ended.
      info_TB: float32, `reports.info_keys` of the environment's info; NaN in rows that are no transition.
      valid_TB: bool, False in rows that are no transition: they make no episode longer. None: all are.
      task_TB: tree of [T, B, ...], the tasks of the episodes that the rows belong to; None makes no rows.

    Returns:
      (the episodes in progress after it, totals over those that ended, with tasks these one by one).
    """
    zeros = jnp.zeros_like(episode.episode_return)
    none = {label: Tally(zeros, zeros) for label in reports.labels}
    start = _Counting(episode, zeros, zeros, zeros, none)
    end, (return_TB, counted_TB, rest) = jax.lax.scan(
        _counter(reports, task_TB is not None), start, (reward_TB, done_TB, info_TB, valid_TB), unroll=unroll
    )
    rows = None
    if rest is not None:
        length_TB, told = rest
        rows = EpisodeRows(
            ended=counted_TB,
            done=done_TB,
            task=task_TB,
            episode_return=return_TB,
            length=length_TB,
            success=told.get(SUCCESS),
            reports=told,
            valid=valid_TB,
        )
    return end.episode, _totals(end, return_TB, counted_TB), rows


def _counter(
    reports: EpisodeReports, makes_rows: bool
) -> Callable[[_Counting, PyTree], tuple[_Counting, tuple[Array, Array, PyTree]]]:
    """The step of a scan over (reward, done, info, valid) [B]; what rows need is None if there are none."""

    def step(loop: _Counting, xs: PyTree) -> tuple[_Counting, tuple[Array, Array, PyTree]]:
        reward, done, info, valid = xs
        at = loop.episode
        made = 1 if valid is None else valid.astype(jnp.int32)
        total = at.episode_return + reward
        length = at.episode_length + made
        tallies = reports.add(at.tallies, info)
        is_counted = done & ~at.skip
        counted = is_counted.astype(jnp.float32)
        ended = reports.final_values(tallies, total, length, is_counted)
        after = _Counting(
            episode=EpisodeStats(
                episode_return=jnp.where(done, 0.0, total),
                episode_length=jnp.where(done, 0, length),
                skip=at.skip & ~done,
                tallies=jax.tree.map(lambda x: jnp.where(done, 0.0, x), tallies),
            ),
            count=loop.count + counted,
            episode_return=loop.episode_return + total * counted,
            length=loop.length + length.astype(jnp.float32) * counted,
            tallies=jax.tree.map(jnp.add, loop.tallies, ended),
        )
        rest = (length, {label: x.value for label, x in ended.items()}) if makes_rows else None
        return after, (total, is_counted, rest)

    return step


def _totals(end: _Counting, return_TB: Array, counted_TB: Array) -> EpisodeTotals:
    """Over the episodes that ended and are counted."""
    count, total, length, tallies = jax.tree.map(
        jnp.sum, (end.count, end.episode_return, end.length, end.tallies)
    )
    mean = total / jnp.maximum(count, 1.0)
    return EpisodeTotals(
        count=count,
        episode_return=total,
        length=length,
        squares=jnp.sum(jnp.where(counted_TB, jnp.square(return_TB - mean), 0.0)),
        lowest=jnp.min(return_TB, where=counted_TB, initial=jnp.inf),
        highest=jnp.max(return_TB, where=counted_TB, initial=-jnp.inf),
        tallies=tallies,
    )


def over_devices(axis: Axis, totals: EpisodeTotals) -> EpisodeTotals:
    """Totals over the episodes of all devices, from this one's; scalars or [1]."""
    own = jax.tree.map(jnp.sum, totals)
    count, total, length, tallies = axis.psum((own.count, own.episode_return, own.length, own.tallies))
    of_each = jnp.stack([own.count, own.episode_return, own.squares, own.lowest, own.highest])
    count_D, return_D, squares_D, lowest_D, highest_D = axis.gather(of_each).T
    # Of several groups (Chan et al. 1979): within each, and between their means.
    between_D = return_D / jnp.maximum(count_D, 1.0) - total / jnp.maximum(count, 1.0)
    return EpisodeTotals(
        count=count,
        episode_return=total,
        length=length,
        squares=jnp.sum(jnp.where(count_D > 0, squares_D + count_D * jnp.square(between_D), 0.0)),
        lowest=jnp.min(lowest_D, where=count_D > 0, initial=jnp.inf),
        highest=jnp.max(highest_D, where=count_D > 0, initial=-jnp.inf),
        tallies=tallies,
    )
