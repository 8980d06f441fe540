"""The fields of `network` that change an architecture; fields of every network follow in `network`."""

from __future__ import annotations

import dataclasses

from jaxrl.config.fields import at_least, at_most, at_most_elements, bounds, distinct, each, field, one_of

MODALITIES = ("state", "local", "global", "graph")
_MOST_UNITS = 65_536
_MOST_LAYERS = 64
_AS_NAMED = "as the architecture has it"


@dataclasses.dataclass(frozen=True)
class ArchitectureConfig:
    """The architecture by name, and what is to differ from it."""

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
        each(at_least(1)),
        each(at_most(_MOST_UNITS)),
        at_most_elements(_MOST_LAYERS),
        help=f"channels of each 3x3 convolution of stride 2 on the local picture; (): {_AS_NAMED}",
        fixed=True,
    )
    global_channels: tuple[int, ...] = field(
        (),
        each(at_least(1)),
        each(at_most(_MOST_UNITS)),
        at_most_elements(_MOST_LAYERS),
        help=f"the same on the picture of the whole level; (): {_AS_NAMED}",
        fixed=True,
    )
    state_sizes: tuple[int, ...] = field(
        (),
        each(at_least(1)),
        each(at_most(_MOST_UNITS)),
        at_most_elements(_MOST_LAYERS),
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
