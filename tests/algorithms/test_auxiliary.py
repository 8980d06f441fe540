"""A custom loss: one number for each step, whose mean is added to the algorithm's loss."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms import AuxiliaryLoss
from jaxrl.algorithms.sequences import Batch
from jaxrl.config import ConfigError

FEATURES_LNF = jnp.arange(24.0).reshape(3, 2, 4)
OUT = SimpleNamespace(features=FEATURES_LNF)


def batch_of(valid: Any = None) -> Batch:
    none = jnp.zeros((3, 2), bool)
    return Batch(obs=None, reset=none, action=None, action_mask=None, valid=valid, carry=None, rows={})


def loss_of(result: Any) -> AuxiliaryLoss:
    return AuxiliaryLoss(lambda params, features, out, batch: result(features), metrics=("size",))


def test_sums_are_over_the_steps_that_count() -> None:
    loss = loss_of(lambda x: (x.mean(axis=-1), {"size": x[..., 0]}))
    total, sums = loss({}, OUT, batch_of())
    assert (total, sums["loss/auxiliary"], sums["size"]) == (69.0, 69.0, 60.0)
    first = jnp.array([[True, False]] + [[False, False]] * 2)
    total, sums = loss({}, OUT, batch_of(first))
    assert (total, sums["size"]) == (1.5, 0.0)


@pytest.mark.parametrize("valid", [None, jnp.ones((3, 2), bool)])
@pytest.mark.parametrize(
    ("result", "message"),
    [
        # A mean would count as one step of six without `valid`, and as six with it.
        (lambda x: (x.mean(), {"size": x[..., 0]}), r"the shape \[\]; it must have one number .*\[3, 2\]"),
        (lambda x: (1.0, {"size": x[..., 0]}), r"the shape \[\]"),
        (lambda x: (x, {"size": x[..., 0]}), r"the shape \[3, 2, 4\]"),  # four times as large
        (lambda x: (x[..., 0], {"size": x.mean()}), r"the shape \[\]"),
        (lambda x: (np.zeros((2, 3)), {"size": x[..., 0]}), r"the shape \[2, 3\]"),
        (lambda x: x[..., 0], r"test_auxiliary:.* returned .*; return \(loss, metrics\)"),
        (lambda x: (x[..., 0], {}, 3), r"returned 3 values; return \(loss, metrics\)"),
        (lambda x: (x[..., 0], None), r"returned 2 values; return \(loss, metrics\), metrics by name"),
        (lambda x: (x[..., 0], {"sise": x[..., 0]}), "returned the metrics sise, and declares size"),
    ],
)
def test_what_is_no_number_for_each_step_is_refused(result: Any, message: str, valid: Any) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        loss_of(result)({}, OUT, batch_of(valid))
    assert "\n" not in str(caught.value)
