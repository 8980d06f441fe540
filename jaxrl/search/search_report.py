"""The report of a search: an HTML page, its two main figures as pictures, the importance of dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrl.config import text
from jaxrl.config.data_files import is_number
from jaxrl.reporting.pages.figures import COLORS, empty_figure, picture
from jaxrl.reporting.pages.page import Section, Table, html_page, require_packages
from jaxrl.search.dimension import Dimension, as_choice, label
from jaxrl.search.pareto import pareto_front
from jaxrl.search.search_folder import SearchFolder
from jaxrl.search.space import Space
from jaxrl.search.trials import DONE, FAILED, PRUNED, Objective, StudyTrial, Task
from jaxrl.search.winner import Verified, summary_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NOTES = (
    "The searched score of the best trial is the highest of many noisy ones, and so likely too good. Its "
    "verified score is a mean over seeds that the search has not seen.",
    "Importance is the share of the variance of the score's rank that a field "
    "explains alone (epsilon squared over groups of its values), without "
    "interactions. With few trials it is rough.",
    "In the parallel coordinates a line is a trial, the darker the better; the "
    "winner's is thick. Ranges searched by their logarithm have a logarithmic axis.",
    "No trial is better in less time than the Pareto front. Seconds are training "
    "time, as stop.seconds counts it.",
)
_MOST_TICKS = 8
_WIDE = 10.0  # the ratio of seconds from which on their axis is logarithmic; ticks of shorter ones overlap
FEWEST = 8  # trials
_MOST_BINS = 5
_SHUFFLES = 200
_CHANCE = 0.05  # that a space without any effect shows one


def write(
    trials: Sequence[StudyTrial], verified: Sequence[Verified], task: Task, folder: SearchFolder
) -> str:
    """Writes report.html, importance.png and parallel_coordinates.png; returns the path of the page.

    Raises:
      ConfigError: the `search` extra is missing, or a file cannot be written.
    """
    require_packages("search")
    sections = _sections(trials, verified, task)
    page = html_page(
        title="Search",
        introduction=_introduction(trials, task),
        problems=(),
        sections=sections,
        notes=_NOTES,
        command="search",
    )
    for section in sections:
        if section.name in ("importance", "parallel_coordinates"):
            (folder.path / f"{section.name}.png").write_bytes(section.png)
    folder.write("report.html", page)
    return str(folder.path / "report.html")


def _introduction(trials: Sequence[StudyTrial], task: Task) -> str:
    counts = Counter(trial.state for trial in trials)
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    objective = task.objective
    better = "more" if objective.direction == "maximize" else "less"
    return (
        f"{len(trials)} trials on {task.config.env.name} ({said}); the score is the {objective.score} "
        f"{objective.metric}; {better} is better."
    )


def _sections(trials: Sequence[StudyTrial], verified: Sequence[Verified], task: Task) -> list[Section]:
    space = task.space
    objective = task.objective
    shares = importance(space, trials, objective)
    front = pareto_front(trials, objective)
    found = [picture("Score of every trial", "history", history(trials, objective))]
    if verified:
        rows = [(f"trial {v.trial.number}", text.number(v.trial.score), summary_of(v)) for v in verified]
        table = Table("", ("candidate", "searched", "verified"), rows)
        found.insert(0, Section("Verified with fresh seeds", table))
    if shares:
        found.append(picture("Importance", "importance", importance_bars(shares)))
    else:
        few = Table("", ("fields",), [(f"needs at least {FEWEST} trials with a score",)])
        found.append(Section("Importance", few))
    best_first = objective.rank(list(trials))
    winner = verified[0].trial if verified else next(iter(best_first), None)
    lines = parallel_coordinates(space, trials, objective, winner)
    found.append(picture("Parallel coordinates", "parallel_coordinates", lines))
    if front:
        found.append(picture("Score against seconds", "front", seconds_front(trials, front, objective)))
        found.append(Section("Pareto front", _table(front, space)))
    others = [t for t in trials if t not in best_first]
    return [*found, Section("Trials", _table([*best_first, *others], space, winner))]


def _table(trials: Sequence[StudyTrial], space: Space, winner: StudyTrial | None = None) -> Table:
    names = [d.name for d in space.dimensions]
    rows = [
        (
            f"{t.number}, the winner" if winner is not None and t.number == winner.number else str(t.number),
            f"{t.state}: {t.reason}" if t.state == FAILED else t.state,
            text.number(t.score),
            "-" if t.seconds is None else f"{t.seconds:.1f}",
            *(label(t.values[name]) for name in names),
        )
        for t in trials
    ]
    return Table("", ("trial", "state", "score", "seconds", *names), rows, names=2)


def history(trials: Sequence[StudyTrial], objective: Objective) -> Figure:
    """The score of each trial, and the best up to it, in the order of their numbers, not of their ends."""
    figure, ax = empty_figure(7.5, 3.2)
    for state, marker in ((DONE, "o"), (PRUNED, "x")):
        shown = [t for t in trials if t.state == state and t.score is not None]
        ax.scatter([t.number for t in shown], [t.score for t in shown], s=18, marker=marker, color=COLORS[0])
    done = sorted(objective.rank(list(trials)), key=lambda trial: trial.number)
    best = [objective.rank(done[: i + 1])[0].score for i in range(len(done))]
    ax.step([t.number for t in done], best, where="post", color=COLORS[1])
    ax.xaxis.get_major_locator().set_params(integer=True)
    pruned = any(t.state == PRUNED for t in trials)
    ax.set_xlabel("trial (crosses were stopped early)" if pruned else "trial")
    ax.set_ylabel(f"{objective.score} {objective.metric}")
    return figure


def importance_bars(importance: Mapping[str, float]) -> Figure:
    """The importance of each dimension, the largest above."""
    names = list(importance)
    figure, ax = empty_figure(7.5, 0.9 + 0.35 * len(names))
    ax.barh(range(len(names)), [importance[name] for name in names], color=COLORS[0], height=0.6)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.set_xlabel("share of the score's rank that the field explains alone")
    return figure


def seconds_front(trials: Sequence[StudyTrial], best: Sequence[StudyTrial], objective: Objective) -> Figure:
    """Score against seconds of training; the Pareto front is a line."""
    figure, ax = empty_figure(7.5, 3.2)
    shown = [t for t in trials if t.state == DONE and t.score is not None and t.seconds]
    ax.scatter([t.seconds for t in shown], [t.score for t in shown], s=18, color=COLORS[0], alpha=0.6)
    ax.plot([t.seconds for t in best], [t.score for t in best], "o-", color=COLORS[1], markersize=4)
    ax.set_xlabel("seconds of training")
    ax.set_ylabel(f"{objective.score} {objective.metric}")
    seconds = [t.seconds for t in shown if t.seconds]
    if seconds and max(seconds) > _WIDE * min(seconds):
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
        for height, mark in marks.items():
            ax.annotate(mark, (column, height), fontsize=7, xytext=(3, 0), textcoords="offset points")
    names = [*(d.name for d in space.dimensions), objective.metric]
    ax.set_xticks(range(columns), [name.replace(".", ".\n", 1) for name in names], fontsize=7)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
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


def importance(space: Space, trials: Sequence[StudyTrial], objective: Objective) -> dict[str, float]:
    """The share of the variance of the score's rank that each dimension explains alone, by name.

    The trials are grouped by a dimension's value, ranges in quantiles, and the variance between groups is
    compared with all of it (epsilon squared, Kelley 1935). Shares that chance explains count as 0: where
    scores are shuffled, any dimension exceeds the limit in one of twenty cases. With ranks, a single very
    low score does not dominate the variance. Joint effects of several dimensions are not measured.

    Args:
      trials: the ones with a score count, also if they were stopped early.
      objective: ranks the scores.

    Returns:
      Shares in [0, 1], the largest first; empty with fewer than 8 trials.
    """
    from scipy.stats import rankdata

    scored = [t for t in trials if t.state in (DONE, PRUNED) and t.score is not None]
    if len(scored) < FEWEST:
        return {}
    ranks = rankdata([objective.gain(t.score or 0.0) for t in scored])  # equal scores share a mean
    groups = {d.name: _groups(d, scored) for d in space.dimensions}
    rng = np.random.default_rng(0)
    shuffled = (rng.permutation(ranks) for _ in range(_SHUFFLES))
    chance = np.quantile([max(_share(g, r) for g in groups.values()) for r in shuffled], 1 - _CHANCE)
    found = {name: _share(each, ranks) for name, each in groups.items()}
    shares = {name: share if share > chance else 0.0 for name, share in found.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _groups(dimension: Dimension, trials: Sequence[StudyTrial]) -> np.ndarray:
    """The group of each trial."""
    values = np.array([dimension.coordinate(t.values[dimension.name]) for t in trials])
    distinct = np.unique(values)
    bins = max(2, min(_MOST_BINS, len(values) // 4))
    if len(distinct) <= bins or dimension.form == "choice":
        return np.searchsorted(distinct, values)
    return np.searchsorted(np.quantile(values, np.arange(1, bins) / bins), values, side="right")


def _share(groups: np.ndarray, ranks: np.ndarray) -> float:
    """Epsilon squared: `1 - (within / (n - k)) / (all / (n - 1))` for n trials in k groups, at least 0."""
    labels = np.unique(groups)
    n = len(ranks)
    k = len(labels)
    total = ((ranks - ranks.mean()) ** 2).sum()
    if n <= k or not total:
        return 0.0
    within = sum(((ranks[groups == g] - ranks[groups == g].mean()) ** 2).sum() for g in labels)
    return float(max(0.0, 1 - (within / (n - k)) / (total / (n - 1))))
