"""Metrics of levels: what is in a buffer, and in which levels episodes were."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp

from jaxrl.experience.level_replay.buffer import LevelBuffer
from jaxrl.metrics.reduction import LastMean, Mean, Metric, Metrics
from jaxrl.types import Array, Axis, EpisodeRows

# The kinds of an episode's level.
NEW, REPLAYED, EDITED = range(3)
HIGHLIGHTS = (("levels/replayed", "replayed"), ("levels/new_success_rate", "new levels"))


def metrics(knows_success: bool, edits: bool) -> Mapping[str, type[Metric]]:
    """The names of the metrics of a buffer and of episodes, with their reductions."""
    of_all = dict.fromkeys(("levels/score", "levels/staleness", "levels/filled"), LastMean)
    return {**of_all, **of_kinds(knows_success, edits)}


def of_kinds(knows_success: bool, edits: bool) -> Mapping[str, type[Metric]]:
    """The kinds of the metrics about the episodes that ended."""
    names = ["replayed", *(["edited"] if edits else []), *(["new_success_rate"] if knows_success else [])]
    return {f"levels/{name}": Mean for name in names}


def of_buffer(buffer: LevelBuffer, iteration: Array) -> Metrics:
    """Means over the levels of a buffer, before this iteration."""
    filled = buffer.filled.astype(jnp.float32)
    count = filled.sum()
    age = (iteration - 1 - buffer.played).astype(jnp.float32)
    return {
        "levels/score": LastMean((filled * buffer.score).sum(), count),
        "levels/staleness": LastMean((filled * age).sum(), count),
        "levels/filled": LastMean(count, jnp.full((), filled.size, jnp.float32)),
    }


def of_episodes(episodes: EpisodeRows, axis: Axis, knows_success: bool, edits: bool) -> Metrics:
    """Shares of the episodes that ended."""
    kind = episodes.task["kind"]
    ended = episodes.ended
    of_kind = [(ended & (kind == k)).sum(dtype=jnp.float32) for k in (NEW, REPLAYED, EDITED)]
    solved = jnp.zeros(())
    if knows_success:
        assert episodes.success is not None
        solved = jnp.where(ended & (kind == NEW), episodes.success, 0.0).sum()
    new, replayed, edited, solved = axis.psum((*of_kind, solved))
    total = new + replayed + edited
    found: Metrics = {"levels/replayed": Mean(replayed, total)}
    if edits:
        found["levels/edited"] = Mean(edited, total)
    if knows_success:
        found["levels/new_success_rate"] = Mean(solved, new)
    return found
