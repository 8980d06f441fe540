"""The tasks of the episodes that environments on the host are playing."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np

from jaxrl.types import PyTree

_NO_STAGE = -1


def tasks_of_rows(playing: PyTree, task_TB: PyTree, begins_TB: np.ndarray) -> tuple[PyTree, PyTree]:
    """(tasks [B] of the episodes in progress after T steps, [T, B] of the episodes that the rows belong to).

    Episodes that began before any task was dealt hold -1 in everything: they are of no stage.

    Args:
      playing: those before the steps; None if no task was dealt yet.
      task_TB: of the episodes that begin after each step; a tree of [T, B], as a task sampler chose them.
      begins_TB: bool, True if one begins.
    """
    given = jax.tree.map(np.asarray, task_TB)
    if playing is None:
        playing = jax.tree.map(lambda x: np.full_like(x[0], _NO_STAGE), given)
    rows = []
    for t, begins in enumerate(begins_TB):
        rows.append(playing)
        new = jax.tree.map(lambda x, t=t: x[t], given)
        playing = jax.tree.map(lambda x, old, begins=begins: np.where(begins, x, old), new, playing)
    found: PyTree = jax.tree.map(lambda *x: np.stack(x), *rows)
    return playing, found


def numbers(task_TB: Mapping[str, np.ndarray]) -> np.ndarray:
    """float64[T, B, F] of a task's numbers [T, B], by their names in order."""
    return np.stack([np.asarray(task_TB[name], np.float64) for name in sorted(task_TB)], axis=-1)
