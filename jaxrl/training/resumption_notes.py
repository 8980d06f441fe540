"""Lines on what has changed when a run continues from a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax

from jaxrl.config import Config, text
from jaxrl.types import LearnerState

if TYPE_CHECKING:
    from jaxrl.algorithms.base import Algorithm

# A schedule that moves a value by less, from one update to the next, is not worth a line.
_LEAST_JUMP = 0.01


def other_jax(meta: Mapping[str, Any]) -> Iterator[str]:
    """The line on another version of jax than that which saved the checkpoint; none if it says none."""
    saved = meta.get("jax")
    if saved and saved != jax.__version__:
        yield (
            f"saved with jax {saved}, continued with jax {jax.__version__}: numbers agree to rounding, "
            "not to the bit"
        )


def replanned(
    algorithm: Algorithm, before: LearnerState, after: LearnerState, earlier: Config, config: Config
) -> Iterator[str]:
    """The line on the values that follow the planned length of the run, if that has changed.

    Args:
      before: the state with the time that had elapsed by the earlier plan.
      after: the same by the present one.
      earlier: the configuration with which it was saved.
    """
    is_same = earlier.total_updates == config.total_updates
    if config.follows_clock:
        is_same = earlier.follows_clock and earlier.stop.seconds == config.stop.seconds
    if is_same or not int(before.updates):
        return
    last = dataclasses.replace(before, updates=before.updates - 1)
    was = algorithm.with_config(earlier).scheduled_values(last)
    now = algorithm.scheduled_values(after)
    moved = [
        f"{name} resumes at {text.number(now[name])}, after {text.number(was[name])}"
        for name in now
        if abs(now[name] - was[name]) > _LEAST_JUMP * max(abs(now[name]), abs(was[name]))
    ]
    if moved:
        now_ends, then_ended = map(_schedule_end, (config, earlier))
        yield f"{' and '.join(moved)}: the schedule ends {now_ends} now, not {then_ended}"


def _schedule_end(config: Config) -> str:
    """The end of the schedules of a configuration, in words."""
    if config.stop.steps:
        return f"at step {config.num_iterations * config.steps_per_iteration:,}"
    return f"after {config.stop.seconds:g} s of training" if config.follows_clock else "never"
