"""Metrics with their reductions: over iterations, into rows, and through a checkpoint."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.metrics import reduction
from jaxrl.metrics.reduction import Interval, Last, LastMean, Maximum, Mean, Metric, Minimum, Spread, Sum

KINDS: dict[str, type[Metric]] = {
    "loss": Mean,
    "return": Mean,
    "count": Sum,
    "updates": Last,
    "lowest": Minimum,
    "highest": Maximum,
    "spread": Spread,
}


def measured(loss: float, returns: list[float], updates: int) -> reduction.Metrics:
    """One iteration in which episodes with these returns ended."""
    number = jnp.float32(len(returns))
    return {
        "loss": Mean.of(jnp.float32(loss)),
        "return": Mean(jnp.float32(sum(returns)), number),
        "count": Sum(number),
        "updates": Last(jnp.int32(updates)),
        "lowest": Minimum(jnp.float32(min(returns, default=np.inf))),
        "highest": Maximum(jnp.float32(max(returns, default=-np.inf))),
        "spread": Spread.of(
            jnp.float32(sum(returns)), number, jnp.float32(np.var(returns or [0]) * len(returns))
        ),
    }


ITERATIONS = [measured(0.5, [1.0, 4.0], 8), measured(1.5, [], 16), measured(0.25, [10.0], 20)]


def interval_of(*iterations: reduction.Metrics) -> Interval:
    add = jax.jit(Interval.add)
    interval = Interval.empty(KINDS)
    for metrics in iterations:
        interval = add(interval, metrics)
    return interval


def test_each_metric_is_reduced_its_own_way() -> None:
    interval = interval_of(*ITERATIONS)
    row = reduction.row(interval.metrics)
    assert interval.iterations == 3
    # The loss averages over iterations, the return over episodes: not the mean of 2.5 and 10.
    expected = {"loss": 0.75, "return": 5.0, "count": 3, "updates": 20, "lowest": 1, "highest": 10}
    assert row == expected | {"spread": pytest.approx(np.std([1, 4, 10], ddof=1))}
    assert all(type(x) is float for x in row.values())


def test_what_was_never_measured_is_not_reported() -> None:
    row = reduction.row(interval_of(ITERATIONS[1]).metrics)
    assert row == {"loss": 1.5, "count": 0.0, "updates": 16.0}


def test_the_latest_ratio_counts_alone() -> None:
    share = lambda total, count: LastMean(jnp.float32(total), jnp.float32(count))  # noqa: E731
    assert reduction.row({"x": share(8, 8).merge(share(1, 4))}) == {"x": 0.25}
    assert reduction.row({"x": share(8, 8).merge(share(0, 0))}) == {}


def test_rows_are_divided_in_float64() -> None:
    # 1 / 3 in float32 is another number.
    assert reduction.row({"x": Mean(jnp.float32(1), jnp.float32(3))}) == {"x": 1 / 3}


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-45, 3.4e38, -0.0, 16777217.0])
def test_interval_survives_json_bit_for_bit(value: float) -> None:
    # A log interval that a resume continues must add up to what it would have without.
    before = interval_of(ITERATIONS[0], measured(value, [value], 2**31 - 1))
    text = json.dumps(reduction.to_json(before))
    after = reduction.from_json(json.loads(text), Interval.empty(KINDS))
    assert jax.tree.structure(after) == jax.tree.structure(before)
    for x, y in zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, ())
        assert x.tobytes() == np.asarray(y).tobytes()


def test_metric_that_a_checkpoint_lacks_starts_empty() -> None:
    before = interval_of(*ITERATIONS)
    stored = {path: x for path, x in reduction.to_json(before).items() if "lowest" not in path}
    stored["of another version"] = 1.0
    after = reduction.from_json(stored, Interval.empty(KINDS))
    assert after.metrics["lowest"].is_empty
    assert reduction.row(after.metrics) == {
        name: x for name, x in reduction.row(before.metrics).items() if name != "lowest"
    }
