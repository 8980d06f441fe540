"""Cores by name: gated recurrent layers, linear ones, fast weights, attention, and none.

A factory takes `network`. A class is taken as well: it gets the `_FIELDS` that it declares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.networks.core import Core, CoreStack
from jaxrl.networks.dense import check_dense
from jaxrl.networks.fast_weights import MLSTM, GatedDelta, LinearAttention, Mamba2
from jaxrl.networks.gated_transformer import GatedTransformer
from jaxrl.networks.kernels.cells import GRU, LSTM, Cell
from jaxrl.networks.kernels.cells import SLSTM as SLSTM_CELL
from jaxrl.networks.kernels.products import matmul
from jaxrl.networks.kernels.recurrent_scan import recurrent_scan
from jaxrl.networks.layers import DTYPES, per_block_orthogonal, weights_of
from jaxrl.networks.linear_cores import FFM, LRU, S5, MinGRU
from jaxrl.networks.registry import Registry
from jaxrl.types import Array, Axis, Carry

# What the class of a core may declare as fields, and which field of `network` gives each.
_FIELDS = {
    "activation": "activation",
    "dtype": "compute_dtype",
    "heads": "core_heads",
    "memory_length": "memory_length",
    "size": "core_size",
    "state_size": "state_size",
}
# Of the first and the last unit of an sLSTM at first: one forgets half in a step, the other in a hundred.
_FORGET_BIAS = (0.0, 5.0)


def constructor(given: str, core: type) -> Callable[[NetworkConfig], Core]:
    """A factory of a class of cores, which gets the fields of `network` that it declares.

    Raises:
      ConfigError: it needs a value that `network` has not, or is a base class; `given` begins the error.
    """
    if core is nn.Module:  # the one module without fields of its own
        raise ConfigError(f"{given} is a base class; name a core derived from it")
    declared = [f for f in dataclasses.fields(core) if f.init and f.name not in ("parent", "name")]
    for f in declared:
        if f.name not in _FIELDS and f.default is f.default_factory is dataclasses.MISSING:
            raise ConfigError(
                f"{given} has the field {f.name} without a default; only {', '.join(_FIELDS)} are given"
            )

    def make(network: NetworkConfig) -> Core:
        values = {f.name: getattr(network, _FIELDS[f.name]) for f in declared if f.name in _FIELDS}
        if "dtype" in values:
            values["dtype"] = DTYPES[network.compute_dtype]
        if "state_size" in values:
            values["state_size"] = network.state_size or network.core_size
        return core(**values)

    return make


CORES: Registry[Callable[[NetworkConfig], Core]] = Registry(
    "network.core", ("network",), nn.Module, constructor
)


class Recurrent(Core):
    """A gated recurrent layer: all gates in one matrix product per step."""

    waits_for_the_carry: ClassVar[bool] = True
    size: int
    cell: Cell
    dtype: jnp.dtype = jnp.float32
    kernel: bool = False  # an LSTM may run as one kernel, see `kernels.lstm_kernel`
    # Heads, whose gates see the last output of their own head alone. Not `heads`, which `constructor` gives
    # every class that has it.
    blocks: int | None = None

    def initial_carry(self, n: int) -> Carry:
        return {name: jnp.zeros((n, self.size), jnp.float32) for name in self.cell.state}

    @nn.compact
    def __call__(self, x_LNF: Array, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        gates = self.cell.gates
        init = per_block_orthogonal(gates)
        weight_x = self.param("input", init, (x_LNF.shape[-1], gates * self.size))
        if self.blocks is None:
            weight_h = self.param("recurrent", init, (self.size, gates * self.size))
        else:
            width = self.size // self.blocks
            weight_h = self.param("recurrent", _of_heads, (self.blocks, width, gates * width))
        bias = self.param("bias", self._bias_init, (gates * self.size,))
        inputs_LNG = matmul(x_LNF.astype(self.dtype), weight_x.astype(self.dtype))
        run = _lstm_kernel().lstm_sequence if self.kernel else partial(recurrent_scan, self.cell)
        y_LNH, carry = run(self.dtype, weight_h, inputs_LNG + bias[None, None], carry, reset_LN)
        return y_LNH.astype(self.dtype), carry

    def describe(self) -> dict[str, Any]:
        heads = {} if self.blocks is None else {"heads": self.blocks}
        return {"type": self.cell.name, "weights": weights_of(self), "size": self.size, **heads}

    def _bias_init(self, key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        bias = jnp.zeros(shape, dtype)
        if self.cell is SLSTM_CELL:
            return bias.at[self.size : 2 * self.size].set(jnp.linspace(*_FORGET_BIAS, self.size))
        # A forget gate that starts open lets gradients pass: Jozefowicz et al. 2015.
        return bias.at[self.size : 2 * self.size].set(1.0) if self.cell is LSTM else bias


class SLSTM(Recurrent):
    """c_t = f_t c_{t-1} + i_t z_t, n_t = f_t n_{t-1} + i_t, h_t = o_t c_t / n_t, with i_t = exp(...).

    Beck et al. 2024, "xLSTM: extended long short-term memory", with sigmoid forget gates. Without the
    convolution over the last four steps that the paper's block puts before the gates, and without the group
    norm and the dense layers after it. Checkpoints name its parameters by this class.
    """


def _of_heads(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    keys = jax.random.split(key, shape[0])
    return jnp.stack([per_block_orthogonal(4)(k, shape[1:], dtype) for k in keys])


def _lstm_kernel() -> Any:
    # Imported on demand: Pallas would slow the start of every run.
    from jaxrl.networks.kernels import lstm_kernel

    return lstm_kernel


class NoCore(Core):
    """Feed-forward: passes features through, with an empty carry."""

    waits_for_the_carry: ClassVar[bool] = False

    def initial_carry(self, n: int) -> Carry:
        return {}

    @nn.compact
    def __call__(self, x_LNF: Array, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        del reset_LN
        return x_LNF, carry

    def describe(self) -> dict[str, Any]:
        return {"type": "none"}


@CORES.register("lstm")
def _lstm(network: NetworkConfig) -> Core:
    kernel = network.recurrence == "pallas"
    return Recurrent(network.core_size, LSTM, DTYPES[network.compute_dtype], kernel)


@CORES.register("gru")
def _gru(network: NetworkConfig) -> Core:
    return Recurrent(network.core_size, GRU, DTYPES[network.compute_dtype])


def _require_heads(network: NetworkConfig, name: str = "core_size") -> None:
    if getattr(network, name) % network.core_heads:
        raise ConfigError(
            f"`network.core_heads` (={network.core_heads}) must divide `network.{name}` "
            f"(={getattr(network, name)}) with `network.core` (={network.core!r})"
        )


@CORES.register("slstm")
def _slstm(network: NetworkConfig) -> Core:
    _require_heads(network)
    dtype = DTYPES[network.compute_dtype]
    return SLSTM(network.core_size, SLSTM_CELL, dtype, blocks=network.core_heads)


def _with_heads(core: type[Core], network: NetworkConfig) -> Core:
    _require_heads(network, "state_size" if core is FFM and network.state_size else "core_size")
    return constructor(network.core, core)(network)


for _name, _core in {"lru": LRU, "mingru": MinGRU, "none": NoCore, "s5": S5}.items():
    CORES.register(_name)(constructor(_name, _core))
for _name, _core in {"ffm": FFM, "gtrxl": GatedTransformer}.items():
    CORES.register(_name)(partial(_with_heads, _core))
for _weights in (GatedDelta, LinearAttention, Mamba2, MLSTM):
    CORES.register(_weights.kind)(partial(_with_heads, _weights))


def build_core(network: NetworkConfig) -> Core:
    """Returns the core that `network.core` names, `network.core_layers` times on itself.

    Raises:
      ConfigError: the name is unknown, the sizes do not fit, or a user's own factory returns something else.
    """
    if network.core_layers == 1:
        return _build_layer(network)
    if network.core == "none":
        raise ConfigError(
            f"`network.core_layers` (={network.core_layers}) must be 1 with `network.core` (='none'): "
            "`network.hidden_sizes` makes a network without memory deeper"
        )
    dtype = DTYPES[network.compute_dtype]
    return CoreStack(partial(_build_layer, network), network.core_layers, dtype, network.remat)


def core_waits(network: NetworkConfig) -> bool:
    """`Core.waits_for_the_carry` of the core that `network` describes: a stack waits if its layers do."""
    return _build_layer(network).waits_for_the_carry


def _build_layer(network: NetworkConfig) -> Core:
    core = CORES.get(network.core)(network)
    if not isinstance(core, Core) or not hasattr(core, "waits_for_the_carry"):
        raise ConfigError(
            f"`network.core` (={network.core!r}) must return a jaxrl.networks.Core that declares "
            "`waits_for_the_carry`"
        )
    return core


def check_recurrence(network: NetworkConfig, platform: str | None = None) -> None:
    """Raises ConfigError if no kernel, or not a platform's, serves what `network.recurrence` asks for."""
    if network.recurrence != "pallas":
        return
    if network.core != "lstm":
        raise ConfigError(f"`network.recurrence` (='pallas') needs `network.core` (={network.core!r}) lstm")
    largest = _lstm_kernel().largest_size(DTYPES[network.compute_dtype], platform)
    if network.core_size > largest:
        where = f"on {platform} " if platform else ""
        raise ConfigError(
            "`network.recurrence` (='pallas') keeps weights near the cores: "
            f"{where}with {network.compute_dtype} "
            f"`network.core_size` (={network.core_size}) must be at most {largest}"
        )


def check_platform(network: NetworkConfig, axis: Axis) -> None:
    """Raises ConfigError if training on these devices would not use the kernels asked for.

    A trained policy acts anywhere: it has the plain forms as well.
    """
    check_dense(network, axis)
    if network.recurrence != "pallas":
        return
    if not _lstm_kernel().runs_on(axis.platform):
        raise ConfigError(
            "`network.recurrence` (='pallas') is a kernel for TPUs and GPUs; "
            f"on {axis.platform} it must be scan or auto"
        )
    if axis.platform == "gpu" and not axis.runs_triton:
        raise ConfigError(
            "`network.recurrence` (='pallas') is a kernel for NVIDIA GPUs since Ampere (compute capability "
            "8.0); on this GPU it must be scan or auto"
        )
    check_recurrence(network, axis.platform)


def chosen_recurrence(network: NetworkConfig, axis: Axis) -> str:
    """The value of `network.recurrence` on these devices, "scan" or "pallas".

    `auto` takes the kernel on GPUs alone: the model of an iteration's time is clearly for it (docs/gpu.md).
    """
    if network.recurrence != "auto":
        return network.recurrence
    if network.core != "lstm" or not axis.runs_triton:
        return "scan"
    largest = _lstm_kernel().largest_size(DTYPES[network.compute_dtype], axis.platform)
    return "pallas" if network.core_size <= largest else "scan"


def kernel_fault(network: NetworkConfig) -> str | None:
    """Runs the kernel and the scan on the default device; says how they differ, or None if they do not."""
    return _lstm_kernel().fault(network.core_size, DTYPES[network.compute_dtype])
