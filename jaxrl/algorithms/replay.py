"""Replay as learners see it: the memory that they request, its batches, and their feedback.

The memory itself is `jaxrl.experience.replay`.
"""

from __future__ import annotations

from dataclasses import dataclass

import flax.struct
import jax.numpy as jnp

from jaxrl.config import Config, ConfigError, ReplayConfig
from jaxrl.config.errors import errors_as
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.goals import Goals, NearGoals, check_goals, goals_of
from jaxrl.envs.modules import load_attribute
from jaxrl.types import Array, Axis, PyTree


@dataclass(frozen=True)
class PriorityPlan:
    """Prioritised replay (Schaul et al. 2016).

    Attributes:
      alpha: exponent of the priorities; 0: all rows alike.
      beta_start: exponent of the importance weights at the first draw.
      beta_draws: draws until it is 1.
    """

    alpha: float
    beta_start: float
    beta_draws: int


@dataclass(frozen=True)
class SequencePlan:
    """Sequences with stored carries (Kapturowski et al. 2019).

    Attributes:
      burn_in: rows at the start of each whose only purpose is a fresh carry.
      length: rows after them that are learnt from.
      interval: rows between the starts of successive sequences, where carries are stored; divides the
        rollout's.
    """

    burn_in: int
    length: int
    interval: int


@dataclass(frozen=True)
class ReplayPlan:
    """The replay memory that an algorithm asks for.

    Attributes:
      rows: kept of each environment; a multiple of the rollout's.
      batch_size: rows, or sequences, of a batch, over all devices; a multiple of `groups`.
      groups: of neighbouring environments, over all devices. Each gives an equal share of the batch, so the
        rows sampled do not depend on the number of devices.
      n_step: most steps whose rewards are summed.
      learning_starts: rows of each environment before which nothing is learnt.
      priorities: None: all rows alike.
      checkpointed: True if the rows are a part of checkpoints.
      hindsight: None: goals stay as they are.
      sequences: None: single rows.
      frames: of a stack; the memory keeps the newest; 1: observations are no stacks.
    """

    rows: int
    batch_size: int
    groups: int
    n_step: int
    learning_starts: int
    axis: Axis
    priorities: PriorityPlan | None = None
    checkpointed: bool = True
    hindsight: HindsightPlan | None = None
    sequences: SequencePlan | None = None
    frames: int = 1

    @property
    def unseen(self) -> int:
        """The oldest rows of each environment, never sampled: some frames of their stacks are gone."""
        return self.frames - 1


@flax.struct.dataclass
class _Drawn:
    """N rows, or sequences, of this device with what followed each of their steps; K = `n_step`.

    Attributes:
      weight: float32[N], importance weights, at most 1.
      row, env: int32[N], where each lies in the memory of this device.
      ready: bool[], equal on all devices: enough is kept to learn.
      latest_reward, latest_steps: float32[], of this device's latest rollout, the sum of the rewards and the
        number of steps: a NaN in it must be found in its iteration, and its rows may not be sampled for long.
      latest_noted: float32[], the mean of the extras that the agent noted in it.
    """

    obs: PyTree
    action: Array
    action_mask: Array | None
    reward: Array
    counts: Array
    terminated: Array
    usable: Array
    weight: Array
    row: Array
    env: Array
    ready: Array
    latest_reward: Array
    latest_steps: Array
    latest_noted: Array


@flax.struct.dataclass
class Transitions(_Drawn):
    """N rows; see `_Drawn`.

    Attributes:
      obs, action, action_mask: [N, ...], where each begins.
      reward: float32[K, N], of the steps from there on, raw.
      counts: bool[K, N], True if a step belongs to it: none after a termination or a truncation, and none
        whose successor is lost.
      terminated: bool[N], True if it ended by a termination: then nothing follows.
      next_obs, next_mask: [N, ...], what follows its last step.
      usable: bool[N]; False if nothing could be sampled, or too little is kept to learn.
    """

    next_obs: PyTree
    next_mask: Array | None

    def feedback(self, error: Array) -> ReplayFeedback:
        """For the memory; `error` float32[N] are TD errors."""
        return ReplayFeedback(jnp.abs(error), self.usable, self.row, self.env, self.ready)


@flax.struct.dataclass
class SequenceBatch(_Drawn):
    """N sequences of W = burn_in + L + `n_step` rows each; L are learnt from. See `_Drawn`.

    Attributes:
      obs, reset, action_mask: [W, N, ...].
      carry: tree of [N, ...], the one that acting had before the first row.
      action: [L, N, ...], of the rows after the burn-in.
      reward, counts: [L, K, N], from each of these rows on; see `Transitions`.
      terminated: bool[L, N], True if the last step that counts ended the episode.
      usable: bool[L, N]; False on rows that are no transition, and where nothing could be sampled.
    """

    reset: Array
    carry: PyTree

    def feedback(self, error: Array) -> ReplayFeedback:
        """For the memory; `error` float32[N] stands for the TD errors of each sequence, 0 if it has none.

        One without a transition to learn from gets that, too: with the priority of new ones it would be
        sampled ever more often as the errors of others fall.
        """
        return ReplayFeedback(error, (self.weight > 0) & self.ready, self.row, self.env, self.ready)


@flax.struct.dataclass
class ReplayFeedback:
    """The TD errors of rows, or sequences, that were sampled.

    Attributes:
      error: float32[N], absolute.
      usable, row, env, ready: of `Transitions`, or of `SequenceBatch`; bool[N], int32[N], bool[].
    """

    error: Array
    usable: Array
    row: Array
    env: Array
    ready: Array


def n_step_return(reward: Array, counts: Array, gamma: Array | float) -> tuple[Array, Array]:
    """(sum of gamma^k reward_k over the steps that count, gamma^m after m of them), float32[N].

    `reward` is float32[K, N], `counts` bool[K, N] is True on the first m steps.
    """
    steps = jnp.arange(len(reward), dtype=jnp.float32)[:, None]
    # Before the sum: a reward that does not count may be of a row that was never written.
    discounted = jnp.where(counts, reward * gamma**steps, 0.0)
    return discounted.sum(axis=0), gamma ** counts.sum(axis=0).astype(jnp.float32)


def sequence_error(error: Array, usable: Array, eta: float) -> Array:
    """float32[N], eta max |error| + (1 - eta) mean |error| of TD errors [L, N] where `usable`.

    Kapturowski et al. 2019, equation 1, with eta 0.9.
    """
    found = jnp.where(usable, jnp.abs(error), 0.0)
    mean = found.sum(axis=0) / jnp.maximum(usable.sum(axis=0), 1).astype(jnp.float32)
    return eta * found.max(axis=0) + (1.0 - eta) * mean


@dataclass(frozen=True)
class HindsightPlan:
    """Hindsight experience replay (Andrychowicz et al. 2017).

    Attributes:
      strategy: of `jaxrl.config.replay.STRATEGIES`, where the new goal comes from: "future", this
        step or a later one of the episode; "final", its last; "episode", any of them; "random", any that is
        kept.
      k: rows with a new goal for each that keeps its own, on average.
      goals: of the environment.
    """

    strategy: str
    k: int
    goals: Goals


def hindsight_plan(config: Config, spec: EnvSpec) -> HindsightPlan | None:
    """The plan of a configuration; None if its strategy is "none".

    Raises:
      ConfigError: no goals can be exchanged, or stored carries would belong to the old ones.
    """
    fields = config.learner_as(ReplayConfig)
    strategy = fields.hindsight
    core = config.network.core
    if strategy == "none":
        return None
    label = f"`{config.section}.hindsight` (={strategy!r})"
    if core != "none":
        raise ConfigError(
            f"{label} needs `network.core='none'`, not {core!r}: stored carries belong to the old goal"
        )
    if spec.goals is None and spec.goal_examples is None:
        raise ConfigError(
            f"{label} needs an environment with goals, whose rewards follow from them (docs/replay.md): "
            f"{spec.name!r}, with its wrappers, has none"
        )
    goals = _goals(f"`{config.section}.hindsight_goals`", fields.hindsight_goals, spec)
    return HindsightPlan(strategy, fields.hindsight_k, goals)


def _goals(label: str, named: str, spec: EnvSpec) -> Goals:
    """The worth of goals: as the environment says, else as is named and agrees with its examples."""
    if spec.goals is not None:
        if named:
            raise ConfigError(
                f"{label} (={named!r}) must be empty: {spec.name!r} says what its goals are worth"
            )
        return spec.goals
    examples = spec.goal_examples
    assert examples is not None
    with errors_as(ConfigError, "", ValueError):
        goals = goals_of(load_attribute(label, named)) if named else NearGoals()
    try:
        check_goals(goals, examples)
    except ValueError as error:
        rule = f"(={named!r})" if named else "(='', which is NearGoals())"
        raise ConfigError(
            f"{label} {rule} {error}; name a function of (achieved, desired), or goals such as NearGoals, of "
            "a module of your own (docs/replay.md)"
        ) from error
    return goals
