"""The result of a tournament as tables, and in files: tournament.json, tournament.html, tournament.png."""

from __future__ import annotations

import importlib.util
import json
import os
from typing import TYPE_CHECKING, Any

from jaxrl.config import ConfigError, installation, versions
from jaxrl.evaluation.tournament.tournament import Results
from jaxrl.reporting.pages.figures import COLORS, empty_figure, render
from jaxrl.reporting.pages.page import Section, Table, html_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILES = ("tournament.html", "tournament.json", "tournament.png")
_NOTES = (
    "The score is the share of games won, where a draw is half a win. Elo is the most likely rating, with a "
    "95% interval; the mean of all players is 0, and each pair counts one drawn game more. Elo in turn "
    "changes by K = 32 with each game, in a fixed random order.",
    "Every pair plays as many games from either seat, and all pairs with the same random keys. Two players "
    "that draw nothing at random play the same game again and again.",
)


def require_packages() -> None:
    """Raises ConfigError if what files need is not installed."""
    missing = [name for name in ("jinja2", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the report needs the `compare` extra: {installation.command('compare')} (no {missing[0]})"
        )


def tables(results: Results) -> tuple[Table, Table]:
    """(the standings, the score of each row against each column)."""
    rated = any(each.skill for each in results.standings)
    headings = ["player", "Elo", "95%", "Elo in turn", *(["OpenSkill"] if rated else [])]
    rows = []
    for each in results.standings:
        skill = [f"{each.skill[0]:.1f} ± {each.skill[1]:.1f}"] if each.skill else []
        rates = [f"{each.elo:.0f}", f"± {each.elo_half_width:.0f}", f"{each.elo_in_turn:.0f}", *skill]
        counts = [f"{n:,}" for n in (each.wins, each.draws, each.losses)]
        rows.append([each.name, *rates, f"{each.score:.3f}", *counts])
    standings = Table("Standings", [*headings, "score", "won", "drawn", "lost"], rows)
    names = [each.name for each in results.standings]
    cells = [
        [name, *("" if i == j else _pair(results.pairs[i, j]) for j in range(len(names)))]
        for i, name in enumerate(names)
    ]
    matrix = Table("Games won-drawn-lost by the row against the column", ["player", *names], cells)
    return standings, matrix


def write(results: Results, folder: str) -> list[str]:
    """Writes the files of a result; returns their paths.

    Raises:
      ConfigError: a package is missing, or a file cannot be written.
    """
    require_packages()
    figure = _figure(results)
    sections = [Section(table.title, table) for table in tables(results)]
    sections.insert(1, Section("Elo", name="elo", svg=render(figure, "svg"), png=render(figure, "png")))
    page = html_page(
        title=f"Tournament in {results.game}",
        introduction=f"{len(results.standings)} players, {results.games:,} games of each pair, half from "
        "each seat.",
        problems=(),
        sections=sections,
        notes=_NOTES,
        command="tournament",
    )
    record: dict[str, Any] = results.record() | {"versions": versions()}
    contents = (page.encode(), (json.dumps(record, indent=2) + "\n").encode(), sections[1].png)
    paths = [os.path.join(folder, name) for name in FILES]
    try:
        os.makedirs(folder, exist_ok=True)
        for path, content in zip(paths, contents, strict=True):
            with open(path, "wb") as file:
                file.write(content)
    except OSError as error:
        raise ConfigError(f"`--output` (={folder!r}) cannot be written: {error}") from error
    return paths


def _pair(counts: Any) -> str:
    return "-".join(map(str, counts))


def _figure(results: Results) -> Figure:
    """The ratings with their intervals, the best above."""
    standings = results.standings
    figure, ax = empty_figure(7.5, 0.9 + 0.35 * len(standings))
    rows = range(len(standings))
    ax.errorbar(
        [each.elo for each in standings],
        rows,
        xerr=[each.elo_half_width for each in standings],
        fmt="o",
        color=COLORS[0],
        capsize=3,
    )
    ax.set_yticks(rows, [each.name for each in standings])
    ax.invert_yaxis()
    ax.set_xlabel("Elo, with a 95% interval")
    return figure
