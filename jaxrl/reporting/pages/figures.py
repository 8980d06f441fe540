"""Figures of reports, drawn with matplotlib (the `compare` and `search` extras)."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jaxrl.reporting.pages.page import Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Distinguishable with colour blindness (Okabe and Ito 2008).
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B2A400")
_STYLES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Curve:
    """Values and their intervals (or empty lists) at x: environment steps, or returns for a profile."""

    x: list[float]
    value: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)


def render(figure: Figure, kind: str) -> bytes:
    """The figure as "svg" or "png"; the same figure gives the same bytes."""
    import matplotlib

    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "jaxrl"}):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(stream, format=kind, dpi=150, metadata=metadata)
    return stream.getvalue()


def picture(title: str, name: str, figure: Figure) -> Section:
    """A section with a figure, whose files are `name`."""
    return Section(title, None, name, render(figure, "svg"), render(figure, "png"))


def empty_figure(width: float, height: float) -> tuple[Figure, Any]:
    """A figure, its size in inches, and its axes, in the style of all reports."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    ax = figure.add_subplot()
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)
    return figure, ax


def draw_curve(ax: Any, curve: Curve, name: str, index: int, drawstyle: str = "default") -> None:
    """Draws a curve with its band, dashed once all colours have been used."""
    color = COLORS[index % len(COLORS)]
    style = _STYLES[(index // len(COLORS)) % len(_STYLES)]
    mark = "o" if len(curve.x) == 1 else None
    ax.plot(curve.x, curve.value, style, color=color, label=plain(name), drawstyle=drawstyle, marker=mark)
    if curve.low:
        step = "post" if drawstyle == "steps-post" else None
        ax.fill_between(curve.x, curve.low, curve.high, color=color, alpha=0.15, linewidth=0, step=step)


def plain(name: str) -> str:
    """The name without the mathematics that matplotlib would read from it."""
    return name.replace("$", r"\$")
