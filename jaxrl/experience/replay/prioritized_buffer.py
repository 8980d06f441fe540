"""A prioritised replay buffer for a custom training loop."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms.replay import PriorityPlan, ReplayPlan
from jaxrl.experience.replay import draws, priority_tree
from jaxrl.experience.replay.priority_tree import PriorityTree
from jaxrl.experience.replay.sampling import Places
from jaxrl.types import Array, Axis, PyTree


@flax.struct.dataclass
class PrioritizedBufferState:
    """The content of a `PrioritizedReplayBuffer`; a pytree.

    Attributes:
      items: tree of [capacity, ...].
      tree: the priorities of the items, as of one environment; 0 if there is nothing.
      cursor: int32[], where the next item goes.
      draws: int32[], calls of `sample`.
    """

    items: PyTree
    tree: PriorityTree
    cursor: Array
    draws: Array

    @property
    def count(self) -> Array:
        """int32[], items in the buffer."""
        return self.tree.count[..., 0]


@dataclass(frozen=True)
class PrioritizedReplayBuffer:
    """Prioritised replay (Schaul et al. 2016) of items of any kind; its methods are pure and can be jitted.

    Items are sampled in proportion to (|TD| + 1e-5)^alpha, none twice in a batch. New ones get the largest
    priority in the buffer, or 1 if it is empty. If the state is donated (`jax.jit(..., donate_argnums=0)`),
    no method copies the items.

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
        require_count("capacity", self.capacity)
        require_count("beta_frames", self.beta_frames)
        if not _is_number(self.alpha) or self.alpha < 0:
            raise ValueError(f"`alpha` (={self.alpha!r}) must be a number, at least 0")
        if not _is_number(self.beta_start) or not 0 <= self.beta_start <= 1:
            raise ValueError(f"`beta_start` (={self.beta_start!r}) must be a number between 0 and 1")

    def init(self, example: PyTree) -> PrioritizedBufferState:
        """An empty buffer for items like `example`, a tree of arrays; ValueError if it holds none."""
        if not jax.tree.leaves(example):
            raise ValueError("the example of an item must hold an array")
        zeros = lambda x: jnp.zeros((self.capacity, *jnp.shape(x)), jnp.asarray(x).dtype)  # noqa: E731
        # An array for each field: one that stands in two places cannot be donated.
        return PrioritizedBufferState(
            items=jax.tree.map(zeros, example),
            tree=priority_tree.empty(1, self.capacity),
            cursor=jnp.zeros((), jnp.int32),
            draws=jnp.zeros((), jnp.int32),
        )

    def add(self, state: PrioritizedBufferState, batch: PyTree) -> PrioritizedBufferState:
        """With a batch of items, a tree of [N, ...]; N is at most the capacity.

        Raises:
          ValueError: it has other parts, shapes or dtypes than the example, or does not fit.
        """
        batch, size = _check_batch(state.items, batch)
        index, _ = priority_tree.window(self.capacity, state.cursor, 0, size, 0)
        new = jnp.full((1, size), draws.leaf_of_new(state.tree.largest.max()))
        return dataclasses.replace(
            state,
            items=jax.tree.map(lambda x, y: x.at[index].set(y, unique_indices=True), state.items, batch),
            tree=priority_tree.write(state.tree, index, new, self._places, self._places),
            cursor=(state.cursor + size) % self.capacity,
        )

    def sample(
        self, state: PrioritizedBufferState, key: Array, batch_size: int
    ) -> tuple[PrioritizedBufferState, PyTree, Array, Array]:
        """Samples a batch.

        Args:
          state: holds at least `batch_size` items; of a smaller one, the rest of the batch has weight 0
            and the index `capacity`.
          key: of this call.
          batch_size: N, at most the capacity.

        Returns:
          (state, items [N, ...], indices int32[N] for `update_priorities`, weights float32[N], at most 1).
        """
        require_count("batch_size", batch_size)
        if batch_size > self.capacity:
            raise ValueError(f"`capacity` (={self.capacity}) is below a batch of {batch_size}")
        plan = self._plan(batch_size)
        _, index, probability = draws.draw(plan, self._places, state.tree, key)
        weight = draws.weights(plan, state.tree, state.draws, probability)
        drawn = jax.tree.map(lambda x: x[index], state.items)
        index = jnp.where(probability > 0, index, self.capacity)
        return dataclasses.replace(state, draws=state.draws + 1), drawn, index, weight

    def update_priorities(
        self, state: PrioritizedBufferState, indices: Array, errors: Array
    ) -> PrioritizedBufferState:
        """With the TD errors float32[N] of items that were sampled.

        In a compiled program those that are not finite do not enter.

        Raises:
          ValueError: outside of one, an error is not finite; the shapes differ.
        """
        indices = jnp.asarray(indices)
        errors = jnp.asarray(errors)
        if indices.ndim != 1 or indices.shape != errors.shape:
            shapes = f"{list(indices.shape)} and {list(errors.shape)}"
            raise ValueError(f"`indices` and `errors` must both be [N], not {shapes}")
        if not any(isinstance(x, jax.core.Tracer) for x in (indices, errors)):
            _require_finite(indices, errors, self.capacity)
        usable = (indices >= 0) & (indices < self.capacity)
        where = jnp.zeros_like(indices), indices
        plan = self._plan(len(indices))
        tree = draws.with_errors(plan, state.tree, self._places, where, errors, usable)
        assert tree is not None
        return dataclasses.replace(state, tree=tree)

    @property
    def _places(self) -> Places:
        """All: where nothing is, the leaf is 0."""
        return Places(1, self.capacity, jnp.int32(0), jnp.int32(self.capacity))

    def _plan(self, batch_size: int) -> ReplayPlan:
        """The plan of the trainer's memory that samples in the same way."""
        return ReplayPlan(
            rows=self.capacity,
            batch_size=batch_size,
            groups=1,
            n_step=1,
            learning_starts=0,
            axis=Axis(platform=jax.default_backend()),
            priorities=PriorityPlan(self.alpha, self.beta_start, self.beta_frames),
        )


def require_count(name: str, value: Any) -> None:
    """Raises ValueError if an argument is not a whole number of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"`{name}` (={value!r}) must be a whole number, at least 1")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def _require_finite(indices: Array, errors: Array, capacity: int) -> None:
    wrong = (np.asarray(indices) < capacity) & ~np.isfinite(np.asarray(errors))
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(
            f"`errors` must be finite: {int(wrong.sum())} of {len(wrong)} are not, such as "
            f"{float(errors[first])} of the item {int(indices[first])}"
        )


def _check_batch(items: PyTree, batch: PyTree) -> tuple[PyTree, int]:
    """(a batch as arrays [N, ...], N), for the arrays [capacity, ...] of the items; ValueError as `add`."""
    _require_parts(items, batch)
    arrays = jax.tree.map(jnp.asarray, batch)
    capacity = len(jax.tree.leaves(items)[0])
    paths, found = zip(*jax.tree_util.tree_leaves_with_path(arrays), strict=True)
    for path, x, kept in zip(paths, found, jax.tree.leaves(items), strict=True):
        name = jax.tree_util.keystr(path)
        if x.ndim == 0 or x.shape[1:] != kept.shape[1:]:
            wanted = ", ".join(["N", *map(str, kept.shape[1:])])
            raise ValueError(f"`batch{name}` has the shape {list(x.shape)}; it must be [{wanted}]")
        if x.dtype != kept.dtype:
            raise ValueError(f"`batch{name}` is {x.dtype}; it must be {kept.dtype}, as in the buffer")
    sizes = sorted({len(x) for x in found})
    if len(sizes) > 1:
        raise ValueError(f"the arrays of a batch must be equally long, not {', '.join(map(str, sizes))}")
    if sizes[0] > capacity:
        raise ValueError(f"{sizes[0]} items do not fit in a buffer of `capacity` (={capacity})")
    if sizes[0] == 0:
        raise ValueError("a batch must hold an item")
    return arrays, sizes[0]


def _require_parts(items: PyTree, batch: PyTree) -> None:
    wanted, found = (
        [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
        for tree in (items, batch)
    )
    missing = [x for x in wanted if x not in found]
    unknown = [x for x in found if x not in wanted]
    if missing:
        raise ValueError(f"a batch must have {', '.join(f'`{x}`' for x in missing)}, as the buffer has")
    if unknown:
        raise ValueError(f"a batch has {', '.join(f'`{x}`' for x in unknown)}, which the buffer has not")
    kept, given = map(str, (jax.tree.structure(items), jax.tree.structure(batch)))
    if kept != given:
        raise ValueError(f"a batch is a {given}; it must be a {kept}, as in the buffer")
