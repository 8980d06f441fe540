"""The result of a tournament as tables, and in files: tournament.json, tournament.html, tournament.png."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jaxrl.config import ConfigError, versions
from jaxrl.config.errors import errors_as
from jaxrl.reporting.pages.figures import COLORS, empty_figure, picture
from jaxrl.reporting.pages.page import Section, Table, html_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_KINDS = ("wins", "draws", "losses")
FILES = ("tournament.html", "tournament.json", "tournament.png")
_NOTES = (
    "The score is the share of games won, with a draw as half a win. Elo is the "
    "maximum-likelihood rating, with a 95% interval; the mean of all players is 0, "
    "and each pair gets one extra draw. Sequential Elo changes by K = 32 with each "
    "game, in a fixed random order.",
    "Every pair plays as many games from either seat, and all pairs with the same random keys. Two players "
    "that draw nothing at random play the same game again and again.",
)


def tables(record: Mapping[str, Any]) -> tuple[Table, Table, Table]:
    """(the standings, the games of each row against each column, the ones that the row began).

    Args:
      record: as in tournament.json.
    """
    rated = any("openskill" in each for each in record["standings"])
    headings = ["player", "Elo", "95%", "sequential Elo", *(["OpenSkill"] if rated else [])]
    rows = []
    for each in record["standings"]:
        skill = [" ± ".join(f"{each['openskill'][x]:.1f}" for x in ("mu", "sigma"))] if rated else []
        rates = [f"{each['elo']:.0f}", f"± {_half_width(each):.0f}", f"{each['elo_in_turn']:.0f}"]
        counts = [f"{each[kind]:,}" for kind in _KINDS]
        rows.append([each["name"], *rates, *skill, f"{each['score']:.3f}", *counts])
    standings = Table("Standings", [*headings, "score", "won", "drawn", "lost"], rows)
    names = [each["name"] for each in record["standings"]]

    def matrix(title: str, began: bool) -> Table:
        games = _games(record, began)
        cells = [[one, *("-".join(map(str, games.get((one, x), ()))) for x in names)] for one in names]
        return Table(title, ["player", *names], cells)

    return (
        standings,
        matrix("Games won-drawn-lost by the row against the column", began=False),
        matrix("Of these, games in which the row had the first move", began=True),
    )


def write(record: Mapping[str, Any], folder: str) -> list[str]:
    """Writes the files of a tournament; returns their paths.

    Raises:
      ConfigError: a file cannot be written.
    """
    figure = picture("Elo and scores", "elo", _figure(record))
    standings, *matrices = (Section(table.title, table) for table in tables(record))
    page = html_page(
        title=f"Tournament in {record['game']}",
        introduction=f"{len(record['standings'])} players, {record['games_per_pair']:,} games of each pair, "
        "half from each seat.",
        problems=(),
        sections=[standings, figure, *matrices],
        notes=_NOTES,
        command="tournament",
    )
    stored = {**record, "versions": versions()}
    contents = (page.encode(), (json.dumps(stored, indent=2) + "\n").encode(), figure.png)
    paths = [os.path.join(folder, name) for name in FILES]
    with errors_as(ConfigError, f"`--output` (={folder!r}) cannot be written", OSError):
        os.makedirs(folder, exist_ok=True)
        for path, content in zip(paths, contents, strict=True):
            with open(path, "wb") as file:
                file.write(content)
    return paths


def _half_width(standing: Mapping[str, Any]) -> float:
    low, high = standing["elo_interval"]
    return float(high - low) / 2


def _games(record: Mapping[str, Any], began: bool) -> dict[tuple[str, str], list[int]]:
    """Games won, drawn and lost, by (one, other): from both seats, or only those that one `began`."""
    found = {}
    for pair in record["pairs"]:
        first, second = ([pair[seat][kind] for kind in _KINDS] for seat in ("first", "second"))
        both = [x + y for x, y in zip(first, second, strict=True)]
        found[pair["one"], pair["other"]] = first if began else both
        # What one lost the other won.
        found[pair["other"], pair["one"]] = list(reversed(second if began else both))
    return found


def _scores(record: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """The score from both seats, a draw half a win, by (one, other)."""
    games = _games(record, began=False).items()
    return {pair: (won + drawn / 2) / (won + drawn + lost) for pair, (won, drawn, lost) in games}


def _figure(record: Mapping[str, Any]) -> Figure:
    """The ratings with their intervals, the best above, and beside each the scores against the others."""
    standings = record["standings"]
    rows = range(len(standings))
    figure, ratings = empty_figure(9.5, 1.8 + 0.4 * len(standings))
    grid = figure.add_gridspec(1, 2)
    ratings.set_subplotspec(grid[0])
    ratings.errorbar(
        [each["elo"] for each in standings],
        rows,
        xerr=[_half_width(each) for each in standings],
        fmt="o",
        color=COLORS[0],
        capsize=3,
    )
    ratings.set_yticks(rows, [each["name"] for each in standings])
    ratings.set_ylim(len(standings) - 0.5, -0.5)
    ratings.set_xlabel("Elo, with a 95% interval")
    _draw_scores(figure.add_subplot(grid[1]), record)
    return figure


def _draw_scores(ax: Axes, record: Mapping[str, Any]) -> None:
    """A cell for each pair: the score of the row against the column, rows as in the standings."""
    scores = _scores(record)
    names = [each["name"] for each in record["standings"]]
    cells = [[scores.get((one, other), math.nan) for other in names] for one in names]
    ax.imshow(cells, vmin=0, vmax=1, cmap="RdBu", aspect="auto")
    for (one, other), score in scores.items():
        # White letters on the dark ends of the scale.
        color = "white" if abs(score - 0.5) > 0.35 else "black"
        place = names.index(other), names.index(one)
        ax.text(*place, f"{score:.2f}", ha="center", va="center", fontsize=7, color=color)
    ax.set_xticks(range(len(names)), names, rotation=30, ha="right")
    ax.set_yticks([])
    ax.tick_params(labelsize=8)
    ax.set_xlabel("score of the row against the column")
