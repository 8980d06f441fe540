"""The report of a search: a self-contained HTML page, and its two main figures as pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jaxrl.config import text
from jaxrl.reporting.pages.figures import picture
from jaxrl.reporting.pages.page import Section, Table, html_page, require_packages
from jaxrl.search import figures
from jaxrl.search.dimension import label
from jaxrl.search.importance import FEWEST, importance
from jaxrl.search.pareto import pareto_front
from jaxrl.search.runner import Task
from jaxrl.search.search_folder import SearchFolder
from jaxrl.search.space import Space
from jaxrl.search.trials import FAILED, StudyTrial
from jaxrl.search.winner import Verified, summary_of

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
    found = [picture("Score of every trial", "history", figures.history(trials, objective))]
    if verified:
        found.insert(0, Section("Verified with fresh seeds", _verified_table(verified)))
    if shares:
        found.append(picture("Importance", "importance", figures.shares(shares)))
    else:
        few = Table("", ("fields",), [(f"needs at least {FEWEST} trials with a score",)])
        found.append(Section("Importance", few))
    best_first = objective.rank(list(trials))
    winner = verified[0].trial if verified else next(iter(best_first), None)
    lines = figures.parallel_coordinates(space, trials, objective, winner)
    found.append(picture("Parallel coordinates", "parallel_coordinates", lines))
    if front:
        found.append(picture("Score against seconds", "front", figures.front(trials, front, objective)))
        found.append(Section("Pareto front", _table(front, space)))
    others = [t for t in trials if t not in best_first]
    return [*found, Section("Trials", _table([*best_first, *others], space, winner))]


def _verified_table(verified: Sequence[Verified]) -> Table:
    rows = [(f"trial {v.trial.number}", text.number(v.trial.score), summary_of(v)) for v in verified]
    return Table("", ("candidate", "searched", "verified"), rows)


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
