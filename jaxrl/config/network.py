"""The section `network`: the architecture by name with what differs from it, and fields of every network."""

from __future__ import annotations

import dataclasses

from jaxrl.config.fields import (
    above,
    at_least,
    at_most,
    at_most_elements,
    bounds,
    distinct,
    each,
    field,
    one_of,
)

MODALITIES = ("state", "local", "global", "graph")
_MOST_UNITS = 65_536
_MOST_LAYERS = 64
_MOST_CORES = 4
_LONGEST_MEMORY = 65_536
_MOST_COMPONENTS = 1_024
_AS_NAMED = "as the architecture has it"
# Units or channels of each layer.
_SIZES = (each(at_least(1)), each(at_most(_MOST_UNITS)), at_most_elements(_MOST_LAYERS))


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The policy's network.

    Names of its parts are checked where they are registered, in `jaxrl.networks`.
    """

    architecture: str = field(
        "",
        help="a network by name, instead of `encoder` and `hidden_sizes` (docs/architectures.md): full_hgt, "
        "simplified_hgt, gat, gcn, vision_free, local_only, mlp_baseline, impala, nature, or your own as "
        "module:attribute; empty: none",
        fixed=True,
        names_module=True,
    )
    sees: tuple[str, ...] = field(
        (),
        each(one_of(*MODALITIES)),
        distinct(),
        help=f"the parts of an observation that it uses: {', '.join(MODALITIES)}; (): {_AS_NAMED}",
        fixed=True,
    )
    graph_layers: int | None = field(
        None, *bounds(1, _MOST_LAYERS), help=f"layers of its graph network; none: {_AS_NAMED}", fixed=True
    )
    graph_width: int | None = field(
        None, *bounds(1, _MOST_UNITS), help=f"units of a node; none: {_AS_NAMED}", fixed=True
    )
    graph_heads: int | None = field(
        None, *bounds(1, _MOST_UNITS), help=f"heads, which share those units; none: {_AS_NAMED}", fixed=True
    )
    local_channels: tuple[int, ...] = field(
        (),
        *_SIZES,
        help=f"channels of each 3x3 convolution of stride 2 on the local picture; (): {_AS_NAMED}",
        fixed=True,
    )
    global_channels: tuple[int, ...] = field(
        (),
        *_SIZES,
        help=f"the same on the picture of the whole level; (): {_AS_NAMED}",
        fixed=True,
    )
    state_sizes: tuple[int, ...] = field(
        (),
        *_SIZES,
        help=f"units of each dense layer on the state; (): {_AS_NAMED}",
        fixed=True,
    )
    fusion: str = field(
        "",
        one_of("", "concatenate", "gated", "attention"),
        help=f"fusion of the parts: concatenate, gated, attention; empty: {_AS_NAMED}",
        fixed=True,
    )
    fusion_size: int | None = field(
        None,
        *bounds(0, _MOST_UNITS),
        help=f"units after fusion; 0: no further layer; none: {_AS_NAMED}",
        fixed=True,
    )
    encoder: str = field(
        "auto",
        help="auto (by the observation), mlp, joint (mlp over a whole dict), minatar, nature, impala, graph, "
        'identity; "key=name,key=name" for dicts',
        fixed=True,
        names_module=True,
    )
    core: str = field(
        "lstm",
        help="lstm, gru, mingru, lru, s5, gated_delta, linear_attention, mamba2, mlstm, gtrxl, ffm, slstm, "
        "none, or a custom module:Class",
        fixed=True,
        names_module=True,
    )
    hidden_sizes: tuple[int, ...] = field(
        (128,),
        *_SIZES,
        help="units of the encoder's dense layers",
        fixed=True,
    )
    core_size: int = field(128, *bounds(1, _MOST_UNITS), help="units of the recurrent core", fixed=True)
    core_layers: int = field(
        1,
        *bounds(1, _MOST_CORES),
        help="stacked cores, each normalised and added to the one below",
        fixed=True,
    )
    core_heads: int = field(
        4,
        *bounds(1, _MOST_UNITS),
        help="heads of gtrxl, gated_delta, linear_attention, mamba2, mlstm and slstm, contexts of ffm; "
        "divides core_size",
        fixed=True,
    )
    memory_length: int = field(
        64, *bounds(1, _LONGEST_MEMORY), help="past steps that each layer of gtrxl attends to", fixed=True
    )
    state_size: int = field(
        0,
        *bounds(0, _MOST_UNITS),
        help="complex numbers in the state of s5 and ffm; 0: core_size",
        fixed=True,
    )
    recurrence: str = field(
        "auto",
        one_of("auto", "scan", "pallas"),
        help="how an lstm runs over time: scan; pallas, a kernel for TPUs and GPUs; auto, the "
        "kernel on NVIDIA GPUs if it applies, else the scan (docs/performance.md)",
    )
    dense: str = field(
        "auto",
        one_of("auto", "layers", "pallas"),
        help="how an mlp without a core runs: layers, one after the other; pallas, a kernel for NVIDIA GPUs; "
        "auto, the kernel on these if it applies (docs/gpu.md)",
    )
    activation: str = field(
        "tanh",
        help="after each dense layer: tanh, relu, silu, gelu; encoders with convolutions have relu",
        fixed=True,
    )
    separate_value: bool = field(False, help="a second encoder and core for the value", fixed=True)
    central_value: bool = field(
        False,
        help="the value sees the environment's global state, by a second encoder and core; "
        "for several agents (docs/many_agents.md)",
        fixed=True,
    )
    head: str = field(
        "auto",
        help="auto (by the action space), categorical, multi_categorical, gaussian (scaled and clipped), "
        "tanh_gaussian (bounded), gaussian_mixture (as gaussian), mixed (actions of several parts)",
        fixed=True,
        names_module=True,
    )
    mixture_components: int = field(
        5,
        *bounds(1, _MOST_COMPONENTS),
        help="Gaussians of the head gaussian_mixture (docs/imitation.md)",
        fixed=True,
    )
    policy_gain: float = field(
        0.01, above(0), help="gain of the orthogonal initial weights of the policy's last layer", fixed=True
    )
    policy_std: float = field(
        1.0,
        above(0),
        help="initial standard deviation of the actions of gaussian, tanh_gaussian and mixed; "
        "in half widths for scaled bounds (docs/environments.md)",
        fixed=True,
    )
    layer_norm: bool = field(
        False, help="normalise over the units of each dense layer, before its activation", fixed=True
    )
    frozen: tuple[str, ...] = field(
        (),
        help='patterns of parameters that are not trained, such as "params/MLP_0/*"; init_from may give them',
    )
    compute_dtype: str = field(
        "float32",
        one_of("float32", "bfloat16"),
        help="type of the network's computation; parameters stay float32",
        fixed=True,
    )
    remat: bool = field(
        False,
        help="on GPUs and TPUs, gradients keep the inputs of the encoder and of each layer of the core, and "
        "compute the rest again: less memory for a forward pass more (docs/scaling.md)",
    )
    matmul_precision: str = field(
        "default",
        one_of("default", "tensorfloat32", "float32"),
        help="precision of float32 products on GPUs and TPUs; default: JAX's, fast and rounded",
    )

    @property
    def has_own_value(self) -> bool:
        """True if the value has an encoder and a core of its own."""
        return self.separate_value or self.central_value
