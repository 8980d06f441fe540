"""Reports of a comparison: a self-contained HTML page, Markdown with pictures beside it, PDF, JSON."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from jaxrl.comparison import tables
from jaxrl.comparison.results import Comparison
from jaxrl.config import text
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.reporting.pages.figures import COLORS, draw_curve, empty_figure, picture, plain, render
from jaxrl.reporting.pages.page import Section, html_page, pdf_page, require_packages, sides

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Runs compared"
_BY_FORCE = "Compared by force although"


def write(comparison: Comparison, folder: str) -> list[str]:
    """Writes report.html, report.md with its pictures, report.pdf and compare.json; returns their paths.

    Raises:
      ConfigError: the `compare` extra is missing, or the folder cannot be written.
    """
    require_packages("compare", pdf=True)
    shown = _printable(comparison)
    sections = _sections(shown)
    page: dict[str, Any] = {
        "title": TITLE,
        "introduction": tables.introduction(shown),
        "problems": shown.problems,
        "problems_title": _BY_FORCE,
        "sections": sections,
        "notes": tables.notes(shown),
    }
    files: dict[str, bytes] = {
        "report.html": html_page(**page, command="compare").encode(),
        "report.md": _markdown(shown, sections).encode(),
        "report.pdf": pdf_page(**page),
        "compare.json": (json.dumps(dataclasses.asdict(comparison), indent=2) + "\n").encode(),
    }
    files |= {f"{section.name}.png": section.png for section in sections if section.png}
    place = epath.Path(folder)
    with errors_as(ConfigError, f"`--output` (={folder}) cannot be written", OSError):
        place.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (place / name).write_bytes(content)
    return [str(place / name) for name in files]


def write_curves(comparison: Comparison, file: str) -> str:
    """Writes the learning curves as a picture, FILE.png; returns its path; raises as `write` does."""
    require_packages("compare", ("matplotlib",))
    png = render(curves(_printable(comparison)), "png")
    with errors_as(ConfigError, f"`--output` (={file}) cannot be written", OSError):
        epath.Path(file).write_bytes(png)
    return file


def _printable(value: Any) -> Any:
    """A copy with each text in it as it can be shown: names of runs come from anyone."""
    if isinstance(value, str):
        return text.printable(value)
    if isinstance(value, Mapping):
        return {_printable(key): _printable(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_printable, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **_printable(fields))
    return value


def _sections(comparison: Comparison) -> list[Section]:
    returns, costs, *rest = tables.all_of(comparison)

    spreads = []
    if any(len(outcome.runs) > 1 for outcome in comparison.outcomes):
        spreads = [
            picture("Final return of every run", "final", intervals(comparison)),
            picture("Performance profile", "profile", profiles(comparison)),
        ]
    return [
        Section(returns.title, returns),
        picture("Learning curves", "curves", curves(comparison)),
        *spreads,
        Section(costs.title, costs),
        *(Section(table.title, table) for table in rest),
    ]


def _markdown(comparison: Comparison, sections: Sequence[Section]) -> str:
    lines = [f"# {TITLE}", "", _escape(tables.introduction(comparison)), ""]
    if comparison.problems:
        lines += [f"**{_BY_FORCE}:**", ""]
        lines += [*(f"- {_escape(problem)}" for problem in comparison.problems), ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        if section.table is None:
            lines += [f"![{section.title}]({section.name}.png)", ""]
            continue
        rule = [{"LEFT": "---", "RIGHT": "---:"}[side] for side in sides(section.table)]
        lines += [_line(section.table.headings), "|" + "|".join(rule) + "|"]
        lines += [*(_line(row) for row in section.table.rows), ""]
    lines += ["## How to read this", "", *(f"- {_escape(note)}" for note in tables.notes(comparison))]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _escape(line: str) -> str:
    """Escapes what Markdown and HTML interpret."""
    line = html.escape(" ".join(line.split()), quote=False)
    for character in "\\`*_|#~$":
        line = line.replace(character, f"\\{character}")
    for link in ("](", "][", "]:"):
        line = line.replace(link, f"]\\{link[1]}")
    return line


def curves(comparison: Comparison) -> Figure:
    """The interquartile mean of the return over steps, with its interval; dashed lines where stages end."""
    from matplotlib.ticker import EngFormatter

    figure, ax = empty_figure(7.5, 3.8)
    for index, outcome in enumerate(comparison.outcomes):
        draw_curve(ax, outcome.curve, outcome.name, index)
        for step in outcome.stage_ends:
            ax.axvline(step, color=COLORS[index % len(COLORS)], linewidth=0.6, linestyle="--", alpha=0.5)
    if comparison.has_curves:
        ax.axhline(comparison.threshold, color="grey", linewidth=0.8, linestyle=":")
        ax.annotate(
            "threshold", (0.995, comparison.threshold), xycoords=("axes fraction", "data"),
            ha="right", va="bottom", fontsize=7, color="grey",
        )  # fmt: skip
    ax.set_xlabel("environment steps")
    ax.set_ylabel(_label(comparison, comparison.drawn))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
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
        low, high = outcome.final.low, outcome.final.high
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


def _legend(ax: Any, comparison: Comparison) -> None:
    if len(comparison.outcomes) > 1:
        ax.legend(fontsize=8, frameon=False)


def _label(comparison: Comparison, name: str) -> str:
    return plain(f"{name}, scaled" if comparison.scales else name)
