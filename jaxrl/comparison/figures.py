"""The figures of a comparison, drawn with matplotlib (the `compare` extra)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxrl.comparison.results import Comparison
from jaxrl.reporting.pages.figures import COLORS, draw_curve, empty_figure, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curves(comparison: Comparison) -> Figure:
    """The interquartile mean of the return over steps, with its interval; dashed lines where stages end."""
    figure, ax = empty_figure(7.5, 3.8)
    for index, outcome in enumerate(comparison.outcomes):
        draw_curve(ax, outcome.curve, outcome.name, index)
        for step in outcome.stage_ends:
            ax.axvline(step, color=COLORS[index % len(COLORS)], linewidth=0.6, linestyle="--", alpha=0.5)
    if comparison.has_curves:
        _draw_threshold(ax, comparison.threshold)
    ax.set_xlabel("environment steps")
    ax.set_ylabel(_label(comparison, comparison.drawn))
    ax.xaxis.set_major_formatter(_engineering_formatter())
    _legend(ax, comparison)
    return figure


def intervals(comparison: Comparison) -> Figure:
    """Final returns: a dot for each run, and the interquartile mean with its interval."""
    count = len(comparison.outcomes)
    figure, ax = empty_figure(7.5, 1.1 + 0.45 * count)
    for index, outcome in enumerate(comparison.outcomes):
        y = count - 1 - index
        color = COLORS[index % len(COLORS)]
        ax.scatter(outcome.finals, [y] * len(outcome.finals), s=16, color=color, alpha=0.35, linewidths=0)
        low = outcome.final.low
        high = outcome.final.high
        if low is not None and high is not None:
            ax.plot([low, high], [y, y], color=color, linewidth=5, alpha=0.35, solid_capstyle="butt")
        ax.plot([outcome.final.value] * 2, [y - 0.25, y + 0.25], color=color, linewidth=2)
    ax.set_yticks(range(count), [plain(outcome.name) for outcome in reversed(comparison.outcomes)])
    ax.set_ylim(-0.6, count - 0.4)
    ax.set_xlabel(_label(comparison, f"final {comparison.metric}"))
    return figure


def profiles(comparison: Comparison) -> Figure:
    """Share of runs whose final return is above each value."""
    figure, ax = empty_figure(7.5, 3.4)
    for index, outcome in enumerate(comparison.outcomes):
        draw_curve(ax, outcome.profile, outcome.name, index, drawstyle="steps-post")
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel(_label(comparison, f"final {comparison.metric}"))
    ax.set_ylabel("share of runs above")
    _legend(ax, comparison)
    return figure


def _draw_threshold(ax: Any, threshold: float) -> None:
    ax.axhline(threshold, color="grey", linewidth=0.8, linestyle=":")
    ax.annotate(
        "threshold", (0.995, threshold), xycoords=("axes fraction", "data"),
        ha="right", va="bottom", fontsize=7, color="grey",
    )  # fmt: skip


def _legend(ax: Any, comparison: Comparison) -> None:
    if len(comparison.outcomes) > 1:
        ax.legend(fontsize=8, frameon=False)


def _label(comparison: Comparison, name: str) -> str:
    return plain(f"{name}, scaled" if comparison.scales else name)


def _engineering_formatter() -> Any:
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="")
