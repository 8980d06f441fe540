"""Figures of reports, drawn with matplotlib (the `compare` and `search` extras)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Distinguishable with colour blindness (Okabe and Ito 2008).
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B2A400")


def render(figure: Figure, kind: str) -> bytes:
    """The figure as "svg" or "png"; the same figure gives the same bytes."""
    import matplotlib

    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "jaxrl"}):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(stream, format=kind, dpi=150, metadata=metadata)
    return stream.getvalue()


def empty_figure(width: float, height: float) -> tuple[Figure, Any]:
    """A figure, its size in inches, and its axes, in the style of all reports."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    ax = figure.add_subplot()
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)
    return figure, ax
