"""The LSTM over time as one kernel for each direction, on TPUs and NVIDIA GPUs.

A scan compiles to separate operations for every step; the kernels hold the loop over time. `recurrent_scan`
computes the same where no kernel applies. The weight gradient is one matrix product over all steps outside
the kernel, as there.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.networks.kernels import lstm_gpu, lstm_tpu, products
from jaxrl.networks.kernels.cells import LSTM, Launch, LSTMSteps, lstm_gates, lstm_tanh_c
from jaxrl.networks.kernels.products import weight_gradient
from jaxrl.networks.kernels.recurrent_scan import recurrent_scan, scan_forward, scan_gradients
from jaxrl.types import Array, Carry, PyTree

Dtype = Any

# By the names that programs are lowered for. Each has `plan`, `largest_size`, `forward` and `backward`.
_KERNELS: dict[str, ModuleType] = {"tpu": lstm_tpu, "cuda": lstm_gpu}
# Devices call themselves "gpu".
_NAMES = {"tpu": "tpu", "gpu": "cuda", "cuda": "cuda"}
_INTERPRETED: contextvars.ContextVar[str | None] = contextvars.ContextVar("interpreted", default=None)


@contextlib.contextmanager
def interpret(platform: str = "tpu") -> Iterator[None]:
    """Programs traced in the block interpret a platform's kernel on any other, slowly: for tests."""
    token = _INTERPRETED.set(_NAMES[platform])
    try:
        yield
    finally:
        _INTERPRETED.reset(token)


def runs_on(platform: str) -> bool:
    """True if programs for the platform may use a kernel; others use the scan."""
    return platform in _NAMES or _INTERPRETED.get() is not None


def largest_size(dtype: Dtype, platform: str | None = None) -> int:
    """The largest H for which a kernel applies to any number of environments: on a platform, or on any."""
    names = [_NAMES[platform]] if platform in _NAMES else list(_KERNELS)
    sizes: list[int] = [_KERNELS[name].largest_size(dtype) for name in names]
    return max(sizes)


def fault(size: int, dtype: Dtype) -> str | None:
    """Compares the kernel with the scan for a short sequence: what is wrong, None if equal up to rounding."""
    length, rows = 6, 20  # some rows are left over whatever the tiles
    keys = jax.random.split(jax.random.key(0), 6)
    weight_HG = jax.random.normal(keys[0], (size, 4 * size)) / size**0.5
    inputs_LNG = jax.random.normal(keys[1], (length, rows, 4 * size))
    carry = {name: jax.random.normal(key, (rows, size)) for name, key in zip("ch", keys[2:4], strict=True)}
    reset_LN = jax.random.bernoulli(keys[4], 0.2, (length, rows))
    weights_LNH = jax.random.normal(keys[5], (length, rows, size))

    def outputs(run: Callable[..., tuple[Array, Carry]]) -> PyTree:
        def loss(*arguments: PyTree) -> tuple[Array, Array]:
            h_LNH, last = run(dtype, *arguments, reset_LN)
            return jnp.sum(h_LNH * weights_LNH) + last["c"].sum(), h_LNH

        gradients, h_LNH = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(weight_HG, inputs_LNG, carry)
        return jax.device_get((h_LNH, gradients))

    scan = partial(recurrent_scan, LSTM)
    return products.fault(
        lambda: outputs(lstm_sequence), lambda: outputs(scan), "does not agree with the scan on this device"
    )


def lstm_sequence(
    dtype: Dtype, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[Array, Carry]:
    """`recurrent_scan` of an LSTM: by a kernel if the program's platform has one with a plan for it."""
    length, rows, gates = inputs_LNG.shape
    plans = [(name, kernel.plan(length, rows, gates // 4, dtype)) for name, kernel in _KERNELS.items()]
    only = _INTERPRETED.get()
    plans = [(name, plan) for name, plan in plans if plan and only in (None, name)]
    if not plans:
        return recurrent_scan(LSTM, dtype, weight_HG, inputs_LNG, carry, reset_LN)
    return _sequence(
        _How(tuple(plans), jnp.dtype(dtype), only is not None), weight_HG, inputs_LNG, carry, reset_LN
    )


@dataclass(frozen=True)
class _How:
    """Blocks of each platform's kernel, by its name."""

    plans: tuple[tuple[str, Any], ...]
    dtype: Dtype
    interpret: bool

    def run(self, direction: str, scan: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
        """Calls a kernel's `forward` or `backward` in programs for its platform, in others `scan`."""
        kernels = {
            name: partial(getattr(_KERNELS[name], direction), Launch(plan, self.dtype, self.interpret))
            for name, plan in self.plans
        }
        if self.interpret:
            (kernel,) = kernels.values()
            return kernel(*arguments)
        return jax.lax.platform_dependent(*arguments, default=partial(scan, self.dtype), **kernels)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _sequence(
    how: _How, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[Array, Carry]:
    return _forward(how, weight_HG, inputs_LNG, carry, reset_LN)[0]


def _forward(
    how: _How, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[tuple[Array, Carry], PyTree]:
    h_LNH, last, c_before_LNH, tanh_LNG = how.run(
        "forward", _forward_by_scan, weight_HG, inputs_LNG, carry, reset_LN
    )
    return (h_LNH, last), (weight_HG, reset_LN, carry["h"], h_LNH, c_before_LNH, tanh_LNG)


def _backward(how: _How, residuals: PyTree, cotangents: PyTree) -> tuple[PyTree, ...]:
    weight_HG, reset_LN, h_NH, h_LNH, c_before_LNH, tanh_LNG = residuals
    kept = LSTMSteps(weight_HG, reset_LN, c_before_LNH, tanh_LNG)
    dinputs_LNG, dcarry = how.run("backward", _backward_by_scan, kept, *cotangents)
    h_before_LNH = jnp.concatenate([h_NH[None], h_LNH[:-1]])
    h_before_LNH = jnp.where(reset_LN[..., None], 0.0, h_before_LNH)
    dweight_HG = weight_gradient(h_before_LNH.astype(how.dtype), dinputs_LNG.astype(how.dtype))
    return dweight_HG, dinputs_LNG, dcarry, None


_sequence.defvjp(_forward, _backward)


def _forward_by_scan(
    dtype: Dtype, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[Array, Carry, Array, Array]:
    h_LNH, last, kept = scan_forward(LSTM, dtype, weight_HG, inputs_LNG, carry, reset_LN)
    _, _, before_L, (tanh_LNG, _) = kept
    return h_LNH, last, before_L["c"], tanh_LNG


def _backward_by_scan(dtype: Dtype, kept: LSTMSteps, dh_LNH: Array, dlast: Carry) -> tuple[Array, Carry]:
    # Recomputed, as storing it costs the kernels more.
    kept_L = (kept.tanh_LNG, lstm_tanh_c(lstm_gates(kept.tanh_LNG), kept.c_before_LNH))
    residuals = (kept.weight_HG, kept.reset_LN, {"c": kept.c_before_LNH}, kept_L)
    dinputs_LNG, _, dcarry = scan_gradients(LSTM, dtype, residuals, (dh_LNH, dlast))
    return dinputs_LNG, dcarry
