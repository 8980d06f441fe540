"""Matrices that fade and are written to over time, one for each head of each environment.

S_t = a_t S_{t-1} + u_t k_t^T and y_t = S_t q_t, with a decay a_t in (0, 1]. What is written at a key is
u_t = b_t v_t (linear attention; Katharopoulos et al. 2020, "Transformers are RNNs") or, by the delta rule,
the correction u_t = b_t (v_t - a_t S_{t-1} k_t) (Yang et al. 2024, "Gated Delta Networks", equation 10).

A sequence is computed in blocks of steps. With S_0 the state before a block and g_t the product of its decays
up to t, which restart at an episode,

    S_t = g_t S_0 + sum_{j <= t} (g_t / g_j) u_j k_j^T,
    y_t = g_t S_0 q_t + sum_{j <= t} (g_t / g_j) (q_t . k_j) u_j,

which are products of matrices (Yang et al. 2024, section 3.3; Dao and Gu 2024, "Transformers are SSMs",
section 6), and only the states between blocks wait for each other. The backward pass computes each block
again: of a block only its inputs and the state before it are kept.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrl.networks.kernels.products import times, times_transposed, transposed_times
from jaxrl.types import Array, PyTree

# Steps of a block, a power of 2.
_BLOCK = 16


class MemoryInputs(NamedTuple):
    """The inputs of a step, float32, for the heads of [N] or [L, N] environments.

    Attributes:
      query, key: [..., heads, K]; for the delta rule keys of norm 1, or the state grows.
      value: [..., heads, V].
      log_decay: [..., heads], the logarithm of a, at most 0.
      strength: [..., heads], b; in (0, 1) for the delta rule.
    """

    query: Array
    key: Array
    value: Array
    log_decay: Array
    strength: Array


def memory_step(state: Array, inputs: MemoryInputs, reset_N: Array, corrects: bool) -> tuple[Array, Array]:
    """(state float32[N, heads, V, K] after one step, y float32[N, heads, V]).

    The state counts as zeros where `reset_N`; `corrects` stands for the delta rule.
    """
    # For a GPU a product is a kernel of its own, and a sum a part of the one that computes its inputs.
    return lax.platform_dependent(
        state,
        inputs,
        reset_N,
        cpu=partial(step_by_products, corrects),
        default=partial(step_by_sums, corrects),
    )


def step_by_products(
    corrects: bool, state: Array, inputs: MemoryInputs, reset_N: Array
) -> tuple[Array, Array]:
    """As `memory_step`; the state is read by products of matrices."""
    decay = jnp.exp(inputs.log_decay)[..., None, None]
    reset = reset_N[:, None, None, None]

    def faded(x: Array) -> Array:
        # Selected, not multiplied: 0 * NaN is NaN, and one diverged episode would spoil all that follow.
        return jnp.where(reset, 0.0, decay * x)

    def after(value: Array) -> tuple[Array, Array]:
        written = inputs.strength[..., None] * value
        return faded(state) + written[..., None] * inputs.key[..., None, :], written

    if not corrects:
        state, _ = after(inputs.value)
        return state, times(state, inputs.query[..., None])[..., 0]
    # One product reads the state at the key and at the query; what is written now adds u_t (k_t . q_t) to y.
    found = faded(times(state, jnp.stack([inputs.key, inputs.query], axis=-1)))
    state, written = after(inputs.value - found[..., 0])
    return state, found[..., 1] + written * (inputs.key * inputs.query).sum(axis=-1, keepdims=True)


def step_by_sums(corrects: bool, state: Array, inputs: MemoryInputs, reset_N: Array) -> tuple[Array, Array]:
    """As `memory_step`; the state is read by sums of products."""
    state = jnp.where(reset_N[:, None, None, None], 0.0, state) * jnp.exp(inputs.log_decay)[..., None, None]
    value = inputs.value
    if corrects:
        value = value - (state * inputs.key[..., None, :]).sum(axis=-1)
    written = inputs.strength[..., None] * value
    state = state + written[..., None] * inputs.key[..., None, :]
    return state, (state * inputs.query[..., None, :]).sum(axis=-1)


def matrix_memory(
    state: Array, inputs: MemoryInputs, reset_LN: Array, corrects: bool = False
) -> tuple[Array, Array]:
    """(state after the last step, y float32[L, N, heads, V]) of a sequence of [L, N] inputs.

    Args:
      state: float32[N, heads, V, K], before it; it counts as zeros before steps of `reset_LN`.
      corrects: True for the delta rule.
    """
    length = len(reset_LN)
    if length == 1:
        state, y = memory_step(state, jax.tree.map(lambda x: x[0], inputs), reset_LN[0], corrects)
        return state, y[None]
    size = min(_BLOCK, 1 << (length - 1).bit_length())
    # Padding neither fades nor writes, so that the last state is the last step's.
    blocks = jax.tree.map(partial(_in_blocks, size), (inputs, reset_LN))
    run = jax.checkpoint(partial(_next_block, corrects), prevent_cse=False)
    (state, spoilt), y = lax.scan(run, _finite_state(state), blocks)
    state = jnp.where(spoilt[..., None, None], jnp.nan, state)
    return state, y.reshape(-1, *y.shape[2:])[:length]


def _in_blocks(size: int, x: Array) -> Array:
    """[L, ...] with zeros behind, as [blocks, steps, ...]."""
    x = jnp.pad(x, [(0, -len(x) % size)] + [(0, 0)] * (x.ndim - 1))
    return x.reshape(-1, size, *x.shape[1:])


def _finite_state(state: Array) -> tuple[Array, Array]:
    """The state with zeros in place of numbers that are not finite, and where there was one [N, heads]."""
    is_finite = jnp.isfinite(state)
    return jnp.where(is_finite, state, 0.0), ~is_finite.all(axis=(-2, -1))


def _next_block(
    corrects: bool, state: tuple[Array, Array], block: tuple[MemoryInputs, Array]
) -> tuple[tuple[Array, Array], Array]:
    """((state after a block, bool[N, heads] where it is not finite), y [steps, N, heads, V])."""
    before, was_spoilt = state
    reset = block[1].T
    finite, (query, key, value, log_decay, strength) = _without_nonfinite(
        jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), block[0])
    )

    size = reset.shape[-1]
    # [N, heads or 1, steps (, steps)] from here on.
    episode = jnp.cumsum(reset, axis=-1)[:, None]
    upto = (episode[..., None] == episode[..., None, :]) & np.tri(size, dtype=bool)[None, None]
    carried = episode == 0
    # Sums within episodes: another one's numbers do not even change how these are rounded.
    log_decay = jnp.where(reset[:, None], 0.0, log_decay)
    total = times_transposed(log_decay, upto[:, 0].astype(jnp.float32))
    fade = jnp.exp(jnp.where(upto, total[..., None] - total[..., None, :], -jnp.inf))
    since = jnp.where(carried, jnp.exp(total), 0.0)[..., None]

    written = strength[..., None] * value
    if corrects:
        found = since * times_transposed(key, before)
        among = strength[..., None] * fade * times_transposed(key, key)
        written = corrections(among, strength[..., None] * (value - found))
    y = since * times_transposed(query, before)
    y = y + times(fade * times_transposed(query, key), written)
    after = since[..., -1:, :] * before + transposed_times(fade[..., -1, :, None] * written, key)

    after, has_grown = _finite_state(after)
    spoilt = (upto & ~finite[..., None, :]).any(axis=-1) | carried & was_spoilt[..., None]
    y = jnp.where(spoilt[..., None], jnp.nan, y)
    return (after, has_grown | spoilt[..., -1]), jnp.moveaxis(y, 2, 0)


def _without_nonfinite(inputs: MemoryInputs) -> tuple[Array, PyTree]:
    """Which steps are finite [N, heads, steps], and the inputs with zeros in place of the others.

    Products are over all steps of a block, and 0 * NaN is NaN: one diverged episode would spoil the next.
    """
    finite = jnp.isfinite(inputs.log_decay) & jnp.isfinite(inputs.strength)
    for x in (inputs.query, inputs.key, inputs.value):
        finite &= jnp.isfinite(x).all(axis=-1)

    def select(x: Array) -> Array:
        return jnp.where(finite if x.ndim == finite.ndim else finite[..., None], x, 0.0)

    return finite, jax.tree.map(select, inputs)


@jax.custom_vjp
def corrections(among: Array, errors: Array) -> Array:
    """u [..., steps, V]: the writes of the delta rule in a block of steps, from a triangular system.

    With u_t = b_t (v_t - a_t S_{t-1} k_t), which is what step t writes at its key, and g_t the product of
    decays since the state S_0 before the block (Yang et al. 2024, section 3.3),

        u_t + b_t sum_{j < t} (g_t / g_j) (k_t . k_j) u_j = b_t (v_t - g_t S_0 k_t).

    Args:
      among: [..., steps, steps], b_t (g_t / g_j) (k_t . k_j); only j < t counts. A power of 2 of steps.
      errors: [..., steps, V], the right-hand side.
    """
    return _forward(among, errors)[0]


def _forward(among: Array, errors: Array) -> tuple[Array, tuple[Array, Array]]:
    inverse = _inverse_of_unit_lower(_lower(among))
    u = times(inverse, errors)
    return u, (inverse, u)


def _backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    """The transposed system: d u = (I + lower)^-1 (d errors - d lower u)."""
    inverse, u = saved
    # The zeros are there already; selecting keeps XLA from a contraction over rows, which is slow on CPU.
    upper = jnp.broadcast_to(np.tri(inverse.shape[-1], dtype=bool).T, inverse.shape)
    of_errors = times(jnp.where(upper, jnp.swapaxes(inverse, -1, -2), 0.0), gradient)
    return -_lower(times_transposed(of_errors, u)), of_errors


corrections.defvjp(_forward, _backward)


def _lower(x: Array) -> Array:
    """Zeros in place of the diagonal and what is above."""
    return jnp.where(jnp.broadcast_to(np.tri(x.shape[-1], k=-1, dtype=bool), x.shape), x, 0.0)


def _inverse_of_unit_lower(lower: Array) -> Array:
    """(I + lower)^-1 of strictly lower triangular matrices [..., steps, steps], a power of 2.

    By the inverses of blocks on the diagonal, which double in size: as exact as substitution, step by step.
    """
    steps = lower.shape[-1]
    size, inverse = 1, jnp.broadcast_to(jnp.eye(steps), lower.shape)
    row, column = np.indices((steps, steps))
    while size < steps:
        # The lower left quarter of each block of twice the size.
        quarter = (row // size == column // size + 1) & (row // (2 * size) == column // (2 * size))
        between = jnp.where(jnp.broadcast_to(quarter, lower.shape), lower, 0.0)
        if size > 1:
            between = times(times(inverse, between), inverse)
        inverse = inverse - between
        size *= 2
    return inverse
