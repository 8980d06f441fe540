"""A prioritised replay buffer for a training loop of one's own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.experience.replay import priorities, sampling
from jaxrl.types import Array, PyTree


@flax.struct.dataclass
class PrioritizedBufferState:
    """The content of a `PrioritizedReplayBuffer`; a pytree.

    Attributes:
      items: tree of [capacity, ...].
      leaf: float32[capacity], see `priorities`; 0 where there is nothing.
      cursor: int32[], where the next item goes.
      draws: int32[], calls of `sample`.
    """

    items: PyTree
    leaf: Array
    cursor: Array
    draws: Array

    @property
    def count(self) -> Array:
        """int32[], items in the buffer."""
        return (self.leaf > 0).sum(dtype=jnp.int32)


@dataclass(frozen=True)
class PrioritizedReplayBuffer:
    """Prioritised replay (Schaul et al. 2016) of items of any kind; its methods are pure and can be jitted.

    Items are drawn in proportion to (|TD| + 1e-5)^alpha, none twice in a batch. New ones get the largest
    priority in the buffer, or 1 if it is empty.

    Attributes:
      capacity: items; the oldest are overwritten.
      alpha: exponent of the priorities; 0: uniform.
      beta_start: exponent of the importance weights at first.
      beta_frames: calls of `sample` until it is 1.
    """

    capacity: int
    alpha: float = 0.6
    beta_start: float = 0.4
    beta_frames: int = 100_000

    def __post_init__(self) -> None:
        if self.capacity < 1 or self.beta_frames < 1:
            raise ValueError("`capacity` and `beta_frames` must be at least 1")
        if self.alpha < 0 or not 0 <= self.beta_start <= 1:
            raise ValueError("`alpha` must be at least 0, `beta_start` between 0 and 1")

    def init(self, example: PyTree) -> PrioritizedBufferState:
        """An empty buffer for items like `example`, a tree of arrays."""
        arrays = jax.tree.map(jnp.asarray, example)
        zero = jnp.zeros((), jnp.int32)
        return PrioritizedBufferState(
            items=jax.tree.map(lambda x: jnp.zeros((self.capacity, *x.shape), x.dtype), arrays),
            leaf=jnp.zeros(self.capacity, jnp.float32),
            cursor=zero,
            draws=zero,
        )

    def add(self, state: PrioritizedBufferState, batch: PyTree) -> PrioritizedBufferState:
        """With a batch of items, a tree of [N, ...]; N is at most the capacity."""
        size = len(jax.tree.leaves(batch)[0])
        if size > self.capacity:
            raise ValueError(f"{size} items do not fit in a buffer of `capacity` (={self.capacity})")
        index = (state.cursor + jnp.arange(size)) % self.capacity
        put = lambda x, y: x.at[index].set(jnp.asarray(y).astype(x.dtype))  # noqa: E731
        return dataclasses.replace(
            state,
            items=jax.tree.map(put, state.items, batch),
            leaf=state.leaf.at[index].set(priorities.leaf_of_new(state.leaf.max())),
            cursor=(state.cursor + size) % self.capacity,
        )

    def sample(
        self, state: PrioritizedBufferState, key: Array, batch_size: int
    ) -> tuple[PrioritizedBufferState, PyTree, Array, Array]:
        """Draws a batch.

        Args:
          state: holds at least `batch_size` items; of a smaller one, the rest of the batch has weight 0
            and the index `capacity`.
          key: of this call.
          batch_size: N, at most the capacity.

        Returns:
          (state, items [N, ...], indices int32[N] for `update_priorities`, weights float32[N], at most 1).
        """
        if batch_size > self.capacity:
            raise ValueError(f"`capacity` (={self.capacity}) is below a batch of {batch_size}")
        few_kernels = jax.default_backend() == "gpu"
        index, found = sampling.draw_weighted(key, state.leaf, batch_size, few_kernels)
        total = jnp.maximum(state.leaf.sum(), jnp.finfo(jnp.float32).tiny)
        beta = priorities.beta_at(state.draws, self.beta_start, self.beta_frames)
        probability = jnp.where(found, state.leaf[index] / total, 0.0)
        weight = priorities.importance(probability, state.count.astype(jnp.float32), beta)
        weight = weight / jnp.maximum(weight.max(), jnp.finfo(jnp.float32).tiny)
        items = jax.tree.map(lambda x: x[index], state.items)
        index = jnp.where(found, index, self.capacity)
        return dataclasses.replace(state, draws=state.draws + 1), items, index, weight

    def update_priorities(
        self, state: PrioritizedBufferState, indices: Array, errors: Array
    ) -> PrioritizedBufferState:
        """With the TD errors float32[N] of items that were drawn.

        In a compiled program those that are not finite do not enter.

        Raises:
          ValueError: outside of one, an error is not finite.
        """
        if not any(isinstance(x, jax.core.Tracer) for x in (indices, errors)):
            _require_finite(indices, errors, self.capacity)
        new = priorities.leaf_of(errors, self.alpha)
        leaf = priorities.update(state.leaf, (indices,), new, indices < self.capacity)
        return dataclasses.replace(state, leaf=leaf)


def _require_finite(indices: Array, errors: Array, capacity: int) -> None:
    wrong = (np.asarray(indices) < capacity) & ~np.isfinite(np.asarray(errors))
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(
            f"`errors` must be finite: {int(wrong.sum())} of {len(wrong)} are not, such as "
            f"{float(errors[first])} of the item {int(indices[first])}"
        )
