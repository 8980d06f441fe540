"""R2D2: its targets, loss and priorities beside a loop of single steps, its burn-in, and what it refuses."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.q_replay_algorithm import QState
from jaxrl.algorithms.r2d2 import R2D2, inverse_rescale, rescale, sequence_error
from jaxrl.algorithms.replay import SequenceBatch
from jaxrl.config import ConfigError
from jaxrl.types import PyTree
from tests.algorithms.draws import sequences
from tests.algorithms.tiny import CONTINUOUS, algorithm_of, tiny_config

SEQUENCES, ACTIONS, N_STEP, LEARNT = 5, 3, 2, 8


@functools.cache
def own(**fields: Any) -> R2D2:
    learner = {f"learner__{name}": value for name, value in fields.items()}
    return algorithm_of(tiny_config("r2d2", log__layers=False, **learner))


def first(algorithm: R2D2) -> QState:
    learner: QState = algorithm.init(jax.random.key(0), algorithm.hyperparameters(algorithm.config))
    # Unlike the network, so that it shows which of the two was asked.
    return dataclasses.replace(learner, target=algorithm.agent.init_params(jax.random.key(1)))


def batch_of(algorithm: R2D2) -> SequenceBatch:
    random, burn_in = np.random.default_rng(1), algorithm.r2d2.burn_in
    mask = random.random((burn_in + LEARNT + N_STEP, SEQUENCES, ACTIONS)) < 0.7
    mask[..., 0] = True
    return sequences(
        *(algorithm.agent, burn_in, LEARNT, N_STEP, SEQUENCES),
        action_mask=mask,
        action=np.zeros((LEARNT, SEQUENCES), np.int32),
        reward=10.0 * random.normal(size=(LEARNT, N_STEP, SEQUENCES)).astype(np.float32),
    )


def q_step_by_step(algorithm: R2D2, params: PyTree, batch: SequenceBatch) -> np.ndarray:
    """float32[W, N, A], one row after the other as acting does."""
    acting = dataclasses.replace(first(algorithm).policy, params=params)
    carry, found = batch.carry, []
    apply = jax.jit(algorithm.agent.apply)
    for t in range(len(batch.reset)):
        row = jax.tree.map(lambda x, t=t: x[t : t + 1], (batch.obs, batch.reset, batch.action_mask))
        out = apply(acting, row[0], carry, row[1], row[2])
        carry = out.carry
        found.append(np.asarray(out.q[0]))
    return np.stack(found)


def h(x: float) -> float:
    return float(np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x)


def inverse(y: float) -> float:
    low, high = -1e6, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle) < y else (low, middle)
    return low


def test_rescaling_and_its_inverse() -> None:
    x = np.array([-3e4, -7.0, -1e-4, 0.0, 1e-6, 0.5, 300.0], np.float32)
    np.testing.assert_allclose(rescale(jnp.asarray(x)), [h(float(v)) for v in x], rtol=2e-6, atol=1e-9)
    y = np.array([-8.0, -0.3, 0.0, 1e-5, 2.0, 40.0], np.float32)
    np.testing.assert_allclose(
        inverse_rescale(jnp.asarray(y)), [inverse(float(v)) for v in y], rtol=2e-6, atol=1e-9
    )


def test_the_error_of_a_sequence_mixes_the_largest_and_the_mean() -> None:
    error = jnp.array([[1.0, -4.0, 3.0], [-3.0, 2.0, 5.0]])
    usable = jnp.array([[True, True, False], [True, False, False]])
    found = sequence_error(error, usable, 0.9)
    np.testing.assert_allclose(found, [0.9 * 3 + 0.1 * 2, 4.0, 0.0], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("rescaling", [True, False])
def test_loss_and_errors_beside_a_loop(double: bool, rescaling: bool) -> None:
    algorithm = own(double=double, value_rescaling=rescaling)
    learner, batch = first(algorithm), batch_of(algorithm)
    _, sums, errors = jax.jit(algorithm.gradient)(learner, batch)
    b: SequenceBatch = jax.device_get(batch)
    burn_in, gamma = algorithm.r2d2.burn_in, algorithm.r2d2.gamma
    q, target_q = (q_step_by_step(algorithm, p, batch) for p in (learner.policy.params, learner.target))
    there, back = (h, inverse) if rescaling else (float, float)
    loss, taken, count, expected = 0.0, 0.0, 0, []
    for n in range(SEQUENCES):
        found = []
        for t in range(LEARNT):
            if not b.usable[t, n]:
                continue
            m = int(b.counts[t, :, n].sum())
            at = burn_in + t
            chooser = q if double else target_q
            following = target_q[at + m, n, int(np.argmax(chooser[at + m, n]))]
            total = sum(gamma**k * float(b.reward[t, k, n]) for k in range(m))
            total += 0.0 if b.terminated[t, n] else gamma**m * back(float(following))
            value = float(q[at, n, b.action[t, n]])
            found.append(abs(value - there(total)))
            loss += 0.5 * float(b.weight[n]) * found[-1] ** 2
            taken, count = taken + value, count + 1
        expected.append(0.9 * max(found) + 0.1 * float(np.mean(found)) if found else 0.0)
    np.testing.assert_allclose(errors, expected, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(sums["loss"], loss / count, rtol=2e-5)
    np.testing.assert_allclose(sums["q"], taken / count, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("burn_in", [0, 3])
def test_no_gradient_enters_the_burn_in(burn_in: int) -> None:
    algorithm = own(burn_in=burn_in, batch_size=8)
    learner, batch = first(algorithm), batch_of(algorithm)
    batch = dataclasses.replace(batch, reset=jnp.zeros_like(batch.reset))  # the carry reaches all rows

    def loss(obs: jax.Array, carry: PyTree) -> jax.Array:
        given = dataclasses.replace(batch, obs=obs, carry=carry)
        return algorithm.gradient(learner, given)[1]["loss"]

    by_obs, by_carry = jax.jit(jax.grad(loss, argnums=(0, 1)))(batch.obs, batch.carry)
    flow = [bool((jnp.abs(x) > 0).any()) for x in jax.tree.leaves(by_carry)]
    assert flow == [burn_in == 0] * len(flow)
    if burn_in:
        np.testing.assert_array_equal(by_obs[:burn_in], 0.0)
    assert (jnp.abs(by_obs[burn_in : burn_in + LEARNT]) > 0).any()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"network__core": "none"}, "`network.core` .='none'. must be a recurrent core: .* use `dqn`"),
        ({"env__name": CONTINUOUS}, "`algorithm` .='r2d2'. needs discrete actions; .*: use `sac`"),
        ({"learner__hindsight": "future"}, "`r2d2.hindsight` .='future'. must be 'none': stored carries"),
        ({"learner__overlap": 8}, "`r2d2.overlap` .=8. must be below `r2d2.trace_length` .=8."),
        ({"learner__overlap": 3}, "`r2d2.trace_length` .=8. less `r2d2.overlap` .=3. must divide `r2d2.roll"),
        ({"learner__burn_in": 60}, "`r2d2.capacity` .=256. is below a batch: 8 environments keep 0 whole"),
        ({"learner__learning_starts": 999}, "`r2d2.capacity` .=256. must be at least"),
    ],
)
def test_what_cannot_be_is_named_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        algorithm_of(tiny_config("r2d2", **fields))
    assert "\n" not in str(error.value)
