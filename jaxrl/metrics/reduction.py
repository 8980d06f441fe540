"""Metric values that carry their reduction, from one update on a device to one row in a file.

A metric is declared once, as the class of its value, which defines the merging of two iterations inside the
compiled program, the number in a row, and the entries of an unfinished interval in a checkpoint.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np


class Metric(abc.ABC):
    """A scalar with its reduction; a pytree of scalars."""

    @classmethod
    @abc.abstractmethod
    def empty(cls) -> Self:
        """The value before the first `merge`."""

    @abc.abstractmethod
    def merge(self, later: Self) -> Self:
        """The metric of both measurements; `later` came after this one."""

    @abc.abstractmethod
    def value(self) -> Any:
        """The number to report."""

    @property
    def is_empty(self) -> Any:
        """True if there is nothing to report. May be overridden."""
        return False


@flax.struct.dataclass
class _Ratio(Metric):
    """A ratio of sums; empty if the second counts nothing."""

    total: jax.Array
    count: jax.Array

    @classmethod
    def empty(cls) -> Self:
        return cls(jnp.zeros((), jnp.float32), jnp.zeros((), jnp.float32))

    def value(self) -> Any:
        return self.total / self.count

    @property
    def is_empty(self) -> Any:
        return self.count == 0


@flax.struct.dataclass
class Mean(_Ratio):
    """A ratio of sums: per update, per episode, or per any other unit that `count` counts."""

    @classmethod
    def of(cls, x: jax.Array) -> Mean:
        """One measurement."""
        return cls(x, jnp.ones((), jnp.float32))

    def merge(self, later: Mean) -> Mean:
        return Mean(self.total + later.total, self.count + later.count)


@flax.struct.dataclass
class Sum(Metric):
    """A count, or anything else that adds up."""

    total: jax.Array

    @classmethod
    def empty(cls) -> Sum:
        return cls(jnp.zeros((), jnp.float32))

    def merge(self, later: Sum) -> Sum:
        return Sum(self.total + later.total)

    def value(self) -> Any:
        return self.total


@flax.struct.dataclass
class Last(Metric):
    """A counter of its own, such as the updates since the start of the run; int32."""

    latest: jax.Array

    @classmethod
    def empty(cls) -> Last:
        return cls(jnp.zeros((), jnp.int32))

    def merge(self, later: Last) -> Last:
        return later

    def value(self) -> Any:
        return self.latest


@flax.struct.dataclass
class LastMean(_Ratio):
    """The latest of several ratios, such as a mean over a window; empty if that counts nothing."""

    def merge(self, later: LastMean) -> LastMean:
        return later


@flax.struct.dataclass
class Minimum(Metric):
    """The smallest value; empty without any."""

    lowest: jax.Array

    @classmethod
    def empty(cls) -> Minimum:
        return cls(jnp.full((), jnp.inf, jnp.float32))

    def merge(self, later: Minimum) -> Minimum:
        return Minimum(jnp.minimum(self.lowest, later.lowest))

    def value(self) -> Any:
        return self.lowest

    @property
    def is_empty(self) -> Any:
        return self.lowest == jnp.inf


@flax.struct.dataclass
class Maximum(Metric):
    """The largest value; empty without any."""

    highest: jax.Array

    @classmethod
    def empty(cls) -> Maximum:
        return cls(jnp.full((), -jnp.inf, jnp.float32))

    def merge(self, later: Maximum) -> Maximum:
        return Maximum(jnp.maximum(self.highest, later.highest))

    def value(self) -> Any:
        return self.highest

    @property
    def is_empty(self) -> Any:
        return self.highest == -jnp.inf


@flax.struct.dataclass
class Spread(Metric):
    """The sample standard deviation (divisor n - 1) of n values; empty for fewer than two.

    `squares` is the sum of their squared differences from their mean.
    """

    count: jax.Array
    mean: jax.Array
    squares: jax.Array

    @classmethod
    def of(cls, total: jax.Array, count: jax.Array, squares: jax.Array) -> Spread:
        """The spread of `count` numbers, from their sum and squared differences from their mean."""
        is_some = count > 0
        mean = jnp.where(is_some, total / jnp.maximum(count, 1.0), 0.0)
        return cls(count, mean, jnp.where(is_some, squares, 0.0))

    @classmethod
    def empty(cls) -> Spread:
        zero = jnp.zeros((), jnp.float32)
        return cls(zero, zero, zero)

    def merge(self, later: Spread) -> Spread:
        # Chan et al. 1979; sums of plain squares would lose a small spread of large numbers to rounding.
        count = self.count + later.count
        share = later.count / jnp.maximum(count, 1.0)
        apart = later.mean - self.mean
        return Spread(
            count,
            self.mean + share * apart,
            self.squares + later.squares + self.count * share * jnp.square(apart),
        )

    def value(self) -> Any:
        return (self.squares / (self.count - 1)) ** 0.5

    @property
    def is_empty(self) -> Any:
        return self.count < 2


Metrics = dict[str, Metric]


@flax.struct.dataclass
class Interval:
    """The metrics of the iterations since the last row, merged."""

    iterations: jax.Array
    metrics: Metrics

    @classmethod
    def empty(cls, metrics: Mapping[str, type[Metric]]) -> Interval:
        """No iterations, of metrics declared by name and class."""
        return cls(jnp.zeros((), jnp.int32), {name: kind.empty() for name, kind in metrics.items()})

    def add(self, metrics: Metrics) -> Interval:
        """With one more iteration, whose metrics must be the declared ones."""
        assert metrics.keys() == self.metrics.keys(), metrics.keys() ^ self.metrics.keys()
        merged = {name: metric.merge(metrics[name]) for name, metric in self.metrics.items()}
        return Interval(self.iterations + 1, merged)


def row(metrics: Metrics) -> dict[str, float]:
    """The values of all metrics that are not empty, as Python numbers.

    Waits for the devices. Divides in float64, after the sums were made on the device.
    """
    host = jax.tree.map(float, jax.device_get(metrics))
    return {name: float(metric.value()) for name, metric in host.items() if not metric.is_empty}


def to_json(interval: Interval) -> dict[str, float]:
    """An unfinished interval by path, for a checkpoint; float32 survives JSON exactly."""
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(interval))
    return {jax.tree_util.keystr(path): x.item() for path, x in leaves}


def from_json(stored: Mapping[str, float], empty: Interval) -> Interval:
    """Inverse of `to_json`; values that are not stored stay `empty`. The arrays are of numpy."""

    def leaf(path: Any, x: jax.Array) -> np.ndarray:
        return np.asarray(stored.get(jax.tree_util.keystr(path), x), x.dtype)

    return jax.tree_util.tree_map_with_path(leaf, empty)
