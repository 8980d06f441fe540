"""The window of episodes that decides over a stage: the latest of each environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.types import Array, Axis


@flax.struct.dataclass
class EpisodeWindow:
    """The latest episodes of W watched environments, up to R of each; the newest first.

    Attributes:
      values: float32[R, W, V], V numbers of each episode.
      count: int32[W], episodes since it was emptied, at most R.
    """

    values: Array
    count: Array


@dataclass(frozen=True)
class WindowShape:
    """The episodes in a window of at most `size`: the same number, up to one, from each environment.

    The episodes that end first are too often short. So it takes the latest of each environment; with more
    environments than episodes it watches only some of them, spread evenly.

    Attributes:
      size: the most episodes.
      num_envs: environments over all devices.
    """

    size: int
    num_envs: int

    @property
    def watched(self) -> int:
        """W, the number of environments whose episodes count."""
        return min(self.size, self.num_envs)

    @property
    def rows(self) -> int:
        """R, the most episodes of one of them."""
        return -(-self.size // self.watched)

    @property
    def indices(self) -> np.ndarray:
        """int[W], the global indices of the watched environments."""
        return np.arange(self.watched) * self.num_envs // self.watched

    def slots(self, sizes: Sequence[int]) -> np.ndarray:
        """bool[S, R, W], the slots of windows of these sizes."""
        order = np.arange(self.rows * self.watched).reshape(self.rows, self.watched)
        return order < np.asarray(sizes)[:, None, None]

    def empty(self, num_values: int) -> EpisodeWindow:
        """No episodes."""
        values = jnp.zeros((self.rows, self.watched, num_values), jnp.float32)
        return EpisodeWindow(values, jnp.zeros(self.watched, jnp.int32))

    def add(self, window: EpisodeWindow, ended_TB: Array, values_TBV: Array, axis: Axis) -> EpisodeWindow:
        """Adds the episodes of a rollout; the same on all devices.

        Args:
          ended_TB: bool, True if an episode of this device's environments ended that counts.
          values_TBV: float32, its numbers.
        """
        count = ended_TB.shape[1]
        local = jnp.asarray(self.indices) - axis.index() * count
        is_own = (local >= 0) & (local < count)
        column = jnp.clip(local, 0, count - 1)
        ended = ended_TB[:, column] & is_own[None]
        values = values_TBV[:, column]
        # 1 at the last episode of the rollout, 2 at the one before, and so on.
        rank = jnp.cumsum(ended[::-1], axis=0, dtype=jnp.int32)[::-1]

        def latest(row: Array) -> Array:
            is_it = ended & (rank == row + 1)
            return jnp.sum(jnp.where(is_it[..., None], values, 0.0), axis=0)

        added = jnp.sum(ended, axis=0, dtype=jnp.int32)
        new, added = axis.psum((jax.lax.map(latest, jnp.arange(self.rows)), added))
        # Older ones move down by the number of new ones.
        age = jnp.arange(self.rows)[:, None] - added[None]
        moved = jnp.take_along_axis(window.values, jnp.maximum(age, 0)[..., None], axis=0)
        kept = jnp.where((age < 0)[..., None], new, moved)
        return EpisodeWindow(kept, jnp.minimum(window.count + added, self.rows))


def totals(window: EpisodeWindow, slots: Array) -> tuple[Array, Array]:
    """(float32[], episodes in slots bool[R, W]; float32[V], the sums of their numbers)."""
    filled = slots & (jnp.arange(slots.shape[0])[:, None] < window.count[None])
    sums = jnp.sum(jnp.where(filled[..., None], window.values, 0.0), axis=(0, 1))
    return jnp.sum(filled, dtype=jnp.float32), sums
