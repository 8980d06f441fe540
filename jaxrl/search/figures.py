"""The figures of a search, drawn with matplotlib (the `search` extra)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxrl.config.data_files import is_number
from jaxrl.reporting.pages.figures import COLORS, empty_figure
from jaxrl.search.dimension import Dimension, as_choice, label
from jaxrl.search.space import Space
from jaxrl.search.trials import DONE, PRUNED, Objective, StudyTrial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_TICKS = 8


def history(trials: Sequence[StudyTrial], objective: Objective) -> Figure:
    """The score of each trial, and the best of the ones that had ended before."""
    figure, ax = empty_figure(7.5, 3.2)
    for state, marker in ((DONE, "o"), (PRUNED, "x")):
        shown = [t for t in trials if t.state == state and t.score is not None]
        ax.scatter([t.number for t in shown], [t.score for t in shown], s=18, marker=marker, color=COLORS[0])
    done = [t for t in trials if t.state == DONE and t.score is not None]
    best = [objective.rank(done[: i + 1])[0].score for i in range(len(done))]
    ax.step([t.number for t in done], best, where="post", color=COLORS[1])
    ax.set_xlabel("trial (crosses were stopped early)")
    ax.set_ylabel(f"{objective.score} {objective.metric}")
    return figure


def shares(importance: Mapping[str, float]) -> Figure:
    """The importance of each dimension, the largest above."""
    names = list(importance)
    figure, ax = empty_figure(7.5, 0.9 + 0.35 * len(names))
    ax.barh(range(len(names)), [importance[name] for name in names], color=COLORS[0], height=0.6)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.set_xlabel("share of the score's rank that the field explains alone")
    return figure


def front(trials: Sequence[StudyTrial], best: Sequence[StudyTrial], objective: Objective) -> Figure:
    """Score against seconds of training; the Pareto front is a line."""
    figure, ax = empty_figure(7.5, 3.2)
    shown = [t for t in trials if t.state == DONE and t.score is not None and t.seconds]
    ax.scatter([t.seconds for t in shown], [t.score for t in shown], s=18, color=COLORS[0], alpha=0.6)
    ax.plot([t.seconds for t in best], [t.score for t in best], "o-", color=COLORS[1], markersize=4)
    ax.set_xlabel("seconds of training")
    ax.set_ylabel(f"{objective.score} {objective.metric}")
    if shown:
        ax.set_xscale("log")
    return figure


def parallel_coordinates(
    space: Space, trials: Sequence[StudyTrial], objective: Objective, winner: StudyTrial | None
) -> Figure:
    """A line per trial across the dimensions to its score; the better, the darker; the winner's is thick."""
    ranked = objective.rank(list(trials))
    columns = len(space.dimensions) + 1
    figure, ax = empty_figure(max(7.5, 1.6 * columns), 4.0)
    scores = [t.score or 0.0 for t in ranked]
    low = min(scores, default=0.0)
    high = max(scores, default=0.0)
    for place, trial in reversed(list(enumerate(ranked))):
        height = ((trial.score or 0.0) - low) / (high - low) if high > low else 0.5
        line = [*(_height(d, trial.values[d.name]) for d in space.dimensions), height]
        worth = 1 - place / max(len(ranked) - 1, 1)
        style = {"color": COLORS[0], "alpha": 0.1 + 0.9 * worth**2, "linewidth": 1.0}
        if winner is not None and trial.number == winner.number:
            style = {"color": COLORS[1], "linewidth": 2.0, "zorder": 3}
        ax.plot(range(columns), line, **style)
    ticks = [_ticks(d) for d in space.dimensions] + [{0.0: f"{low:.4g}", 1.0: f"{high:.4g}"}]
    for column, marks in enumerate(ticks):
        ax.axvline(column, color="grey", linewidth=0.8)
        for height, text in marks.items():
            ax.annotate(text, (column, height), fontsize=7, xytext=(3, 0), textcoords="offset points")
    names = [*(d.name for d in space.dimensions), objective.metric]
    ax.set_xticks(range(columns), [name.replace(".", ".\n", 1) for name in names], fontsize=7)
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.set_xlim(-0.1, columns - 0.5)
    return figure


def _ticks(dimension: Dimension) -> dict[float, str]:
    """Heights with their texts: the bounds of a range, or all choices, if many the first and the last."""
    values = _in_order(dimension) or [dimension.low, dimension.high]
    if len(values) > _MOST_TICKS:
        values = [values[0], values[-1]]
    return {_height(dimension, value): label(value) for value in values}


def _height(dimension: Dimension, value: Any) -> float:
    """The place of a value on its axis, in [0, 1]."""
    if not dimension.choices:
        return dimension.coordinate(value)
    choices = _in_order(dimension)
    return choices.index(as_choice(value)) / max(len(choices) - 1, 1)


def _in_order(dimension: Dimension) -> list[Any]:
    """The choices; numbers from the smallest to the largest."""
    choices = dimension.choices
    return sorted(choices) if all(is_number(x) for x in choices) else list(choices)
