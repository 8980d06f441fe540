"""Feed-forward networks of dense layers computed by kernels for GPUs, as `network.dense` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import flax.linen as nn

from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.networks.encoders import MLP
from jaxrl.networks.layers import DTYPES, activation
from jaxrl.networks.operations import Vector
from jaxrl.types import Array, Axis, PyTree


class LinearHead(nn.Module):
    """A head that is a function of the output of one linear layer, which a kernel may compute.

    Attributes:
      layer: the name of the layer's parameters among the head's; "": they are the head's own.
    """

    layer: ClassVar[str] = ""

    def finish(self, y: Array, mask: Array | None) -> Any:
        """The output of the head, from that of the layer."""
        raise NotImplementedError


def chosen_dense(network: NetworkConfig, axis: Axis) -> str:
    """The value of `network.dense` on these devices, "layers" or "pallas".

    `auto` takes the kernels if they may apply: the model of an iteration's time is for them (docs/gpu.md).
    """
    if network.dense != "auto":
        return network.dense
    return "pallas" if axis.runs_triton and _may_apply(network) else "layers"


def check_dense(network: NetworkConfig, axis: Axis) -> None:
    """Raises ConfigError if training on these devices cannot use the kernels asked for."""
    if network.dense != "pallas":
        return
    if not (axis.runs_triton or _kernel().interprets()):
        raise ConfigError(
            "`network.dense` (='pallas') is a kernel for NVIDIA GPUs since Ampere (compute capability 8.0); "
            f"on {axis.platform} it must be layers or auto"
        )
    if not _may_apply(network):
        raise ConfigError(
            "`network.dense` (='pallas') needs an mlp without layer_norm, and `network.core` "
            f"(={network.core!r}) none"
        )


def dense_fault(network: NetworkConfig) -> str | None:
    """Runs kernels and layers on the default device; says how they differ, or None if they do not."""
    return _kernel().fault(
        activation(network.activation), DTYPES[network.compute_dtype], network.hidden_sizes
    )


def outputs_by_kernel(
    network: NetworkConfig,
    trunks: Mapping[str, nn.Module],
    heads: Sequence[tuple[str, str, nn.Module]],
    obs: PyTree,
    mask: Array | None,
) -> dict[str, Any] | None:
    """The outputs of all heads; None if `network.dense` is not "pallas", or the kernels do not apply.

    Args:
      trunks: bound encoders by name; nothing follows them but heads.
      heads: (name, trunk, bound module) of each.
      obs: [L, N, *O].
      mask: bool[L, N, A], or None.
    """
    if network.dense != "pallas" or not _may_apply(network):
        return None
    encoders = [encoder for encoder in trunks.values() if isinstance(encoder, MLP)]
    linear = [(name, trunk, head) for name, trunk, head in heads if isinstance(head, LinearHead)]
    if len(encoders) < len(trunks) or len(linear) < len(heads):
        return None
    kernel = _kernel()
    parameters = [
        kernel.Trunk(
            hidden=tuple(_parameters(encoder, f"Dense_{i}") for i in range(len(network.hidden_sizes))),
            heads=tuple(_parameters(head, head.layer) for _, of, head in linear if of == trunk),
        )
        for trunk, encoder in zip(trunks, encoders, strict=True)
    ]
    x = Vector(encoders[0].space, encoders[0].dtype)(obs)
    found = kernel.dense_heads(activation(network.activation), DTYPES[network.compute_dtype], x, parameters)
    by_trunk = {trunk: iter(outputs) for trunk, outputs in zip(trunks, found, strict=True)}
    return {name: head.finish(next(by_trunk[trunk]), mask) for name, trunk, head in linear}


def _may_apply(network: NetworkConfig) -> bool:
    return network.core == "none" and not network.architecture and not network.layer_norm


def _parameters(module: nn.Module, layer: str) -> tuple[Array, Array]:
    params = module.variables["params"]
    own = params[layer] if layer else params
    return own["kernel"], own["bias"]


def _kernel() -> Any:
    # Imported on demand: Pallas would slow the start of every run.
    from jaxrl.networks.kernels import dense_kernel

    return dense_kernel
