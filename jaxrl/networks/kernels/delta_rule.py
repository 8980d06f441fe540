"""The gated delta rule over time: a matrix that is corrected towards a value at each key, and fades.

S_t = a_t S_{t-1} (I - b_t k_t k_t^T) + b_t v_t k_t^T, and y_t = S_t q_t (Yang et al. 2024, "Gated Delta
Networks", equation 10).

A sequence is computed in blocks of steps. With u_t = b_t (v_t - a_t S_{t-1} k_t), which is what step t writes
at its key, a state is S_t = g_t S_0 + sum_{j <= t} (g_t / g_j) u_j k_j^T, where S_0 is the state before the
block and g_t the product of its decays up to t. The u of a block solve a triangular system,

    u_t + b_t sum_{j < t} (g_t / g_j) (k_t . k_j) u_j = b_t (v_t - g_t S_0 k_t),

whose inverse does not depend on S_0: that is computed for all blocks at once, in products of matrices, and
only the states between blocks one after the other (the same paper, section 3.3).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrl.types import Array

# Steps of a block, a power of 2.
_BLOCK = 16


class DeltaInputs(NamedTuple):
    """The inputs of a step, float32, for the heads of [N] or [L, N] environments.

    Attributes:
      query, key: [..., heads, K]; keys of norm 1, or the state grows.
      value: [..., heads, V].
      log_decay: [..., heads], the logarithm of a, at most 0.
      strength: [..., heads], b in (0, 1).
    """

    query: Array
    key: Array
    value: Array
    log_decay: Array
    strength: Array


def delta_step(state: Array, inputs: DeltaInputs, reset_N: Array) -> tuple[Array, Array]:
    """(state after one step, y), both float32.

    Args:
      state: float32[N, heads, V, K].
      inputs: of one step.
      reset_N: bool; the state counts as zeros.
    """
    # Selected, not multiplied: 0 * NaN is NaN, and one diverged episode would spoil all that follow.
    state = jnp.where(reset_N[:, None, None, None], 0.0, state) * jnp.exp(inputs.log_decay)[..., None, None]
    # Sums of products rather than dots: a CPU computes them in the loop that also reads the state.
    found = (state * inputs.key[..., None, :]).sum(axis=-1)
    error = inputs.strength[..., None] * (inputs.value - found)
    state = state + error[..., None] * inputs.key[..., None, :]
    return state, (state * inputs.query[..., None, :]).sum(axis=-1)


def delta_rule(state: Array, inputs: DeltaInputs, reset_LN: Array) -> tuple[Array, Array]:
    """The rule over a sequence.

    Args:
      state: float32[N, heads, V, K], before it.
      inputs: of [L, N] steps.
      reset_LN: bool; the state counts as zeros before step t.

    Returns:
      (state after the last step, y float32[L, N, heads, V]).
    """
    length = len(reset_LN)
    if length == 1:
        state, y = delta_step(state, jax.tree.map(lambda x: x[0], inputs), reset_LN[0])
        return state, y[None]
    # Padding neither fades nor writes, so that the last state is that of the last step.
    blocked = jax.tree.map(_in_blocks, (inputs, reset_LN[..., None]))
    finite, inputs = _without_nonfinite(blocked[0])
    block = _Block.of(inputs, blocked[1], finite)
    state, (before, written) = lax.scan(_next_state, state, block)
    y = block.reads(inputs.query, before, written)
    return state, jnp.moveaxis(y, 3, 1).reshape(-1, *y.shape[1:3], y.shape[-1])[:length]


def _in_blocks(x: Array) -> Array:
    """[L, N, heads, ...] with zeros behind, as [blocks, N, heads, steps, ...]."""
    x = jnp.pad(x, [(0, -len(x) % _BLOCK)] + [(0, 0)] * (x.ndim - 1))
    return jnp.moveaxis(x.reshape(-1, _BLOCK, *x.shape[1:]), 1, 3)


def _without_nonfinite(inputs: DeltaInputs) -> tuple[Array, DeltaInputs]:
    """Which steps are finite, and the inputs with zeros in place of the others.

    Products are over all steps of a block, and 0 * NaN is NaN: one diverged episode would spoil the next.
    """
    finite = jnp.isfinite(inputs.log_decay) & jnp.isfinite(inputs.strength)
    for x in (inputs.query, inputs.key, inputs.value):
        finite &= jnp.isfinite(x).all(axis=-1)

    def select(x: Array) -> Array:
        return jnp.where(finite if x.ndim == finite.ndim else finite[..., None], x, 0.0)

    return finite, jax.tree.map(select, inputs)


class _Block(NamedTuple):
    """All of [N, heads] blocks, or [blocks, N, heads], that does not depend on the state before them.

    Attributes:
      key: [steps, K].
      written: [steps, V], u if the state before is zeros.
      erased: [steps, K]; u is `written` - `erased` S_0^T.
      since: [steps], g_t; 0 once an episode has begun in the block.
      seen: [steps, steps], (g_t / g_j) (q_t . k_j) for j <= t.
      fade: [steps], g_L / g_j for the last step L.
      carried: bool[steps], True while the state before the block is that of the same episode.
      spoilt: bool[steps], True if an input of this episode, in this block and up to this step, is not finite.
    """

    key: Array
    written: Array
    erased: Array
    since: Array
    seen: Array
    fade: Array
    carried: Array
    spoilt: Array

    @classmethod
    def of(cls, inputs: DeltaInputs, reset: Array, finite: Array) -> _Block:
        """The blocks of inputs [blocks, N, heads, steps, ...]."""
        query, key, value, log_decay, strength = inputs
        episode = jnp.cumsum(reset, axis=-1)
        before, upto = (
            jnp.broadcast_to(np.tri(_BLOCK, k=k, dtype=bool), (*reset.shape, _BLOCK)) for k in (-1, 0)
        )
        upto &= episode[..., None] == episode[..., None, :]
        # Sums within episodes: another one's numbers do not even change how these are rounded.
        log_decay = jnp.where(reset, 0.0, log_decay)
        total = jnp.where(upto, log_decay[..., None, :], 0.0).sum(axis=-1)
        fade = jnp.exp(jnp.where(upto, total[..., None] - total[..., None, :], -jnp.inf))
        carried = jnp.broadcast_to(episode == 0, total.shape)
        since = jnp.where(carried, jnp.exp(total), 0.0)
        lower = jnp.where(before, strength[..., None] * fade * _product("tk,jk->tj", key, key), 0.0)
        inverse = _inverse_of_unit_lower(lower)
        return cls(
            key=key,
            written=_product("tj,jv->tv", inverse, strength[..., None] * value),
            erased=_product("tj,jk->tk", inverse, (strength * since)[..., None] * key),
            since=since,
            seen=fade * _product("tk,jk->tj", query, key),
            fade=fade[..., -1, :],
            carried=carried,
            spoilt=(upto & ~finite[..., None, :]).any(axis=-1),
        )

    def reads(self, query: Array, state: Array, written: Array) -> Array:
        """y [..., steps, V], where `written` is u."""
        found, is_finite = _finite_state(state)
        y = self.since[..., None] * _product("tk,vk->tv", query, found)
        y = y + _product("tj,jv->tv", self.seen, written)
        return jnp.where((self.spoilt | self.carried & ~is_finite[..., None])[..., None], jnp.nan, y)


def _next_state(state: Array, block: _Block) -> tuple[Array, tuple[Array, Array]]:
    """(state after a block, (the state before it, u))."""
    found, is_finite = _finite_state(state)
    u = block.written - _product("tk,vk->tv", block.erased, found)
    after = block.since[..., -1, None, None] * found
    after = after + _product("tv,tk->vk", block.fade[..., None] * u, block.key)
    is_spoilt = block.spoilt[..., -1] | block.carried[..., -1] & ~is_finite
    return jnp.where(is_spoilt[..., None, None], jnp.nan, after), (state, u)


def _finite_state(state: Array) -> tuple[Array, Array]:
    """Zeros in place of states that are not finite, and which are."""
    is_finite = jnp.isfinite(state).all(axis=(-2, -1))
    return jnp.where(is_finite[..., None, None], state, 0.0), is_finite


@jax.custom_vjp
def _inverse_of_unit_lower(lower: Array) -> Array:
    """(I + lower)^-1 of strictly lower triangular matrices [..., steps, steps].

    By the inverses of blocks on the diagonal, which double in size: as exact as substitution, step by step.
    """
    size, inverse = 1, jnp.broadcast_to(jnp.eye(_BLOCK), lower.shape)
    row, column = np.indices((_BLOCK, _BLOCK))
    while size < _BLOCK:
        # The lower left quarter of each block of twice the size.
        quarter = (row // size == column // size + 1) & (row // (2 * size) == column // (2 * size))
        between = jnp.where(jnp.broadcast_to(quarter, lower.shape), lower, 0.0)
        if size > 1:
            between = _product("ij,jk->ik", _product("ij,jk->ik", inverse, between), inverse)
        inverse = inverse - between
        size *= 2
    return inverse


def _forward(lower: Array) -> tuple[Array, Array]:
    inverse = _inverse_of_unit_lower(lower)
    return inverse, inverse


def _backward(inverse: Array, gradient: Array) -> tuple[Array]:
    """d (I + lower)^-1 = -(I + lower)^-1 d lower (I + lower)^-1."""
    return (-_product("ik,jk->ij", _product("ki,kj->ij", inverse, gradient), inverse),)


_inverse_of_unit_lower.defvjp(_forward, _backward)


def _product(subscripts: str, x: Array, y: Array) -> Array:
    """Of matrices behind the same leading axes, in float32: acting, step by step, has no fewer digits."""
    one, rest = subscripts.split(",")
    other, result = rest.split("->")
    return jnp.einsum(f"...{one},...{other}->...{result}", x, y, precision=lax.Precision.HIGHEST)
