"""Reports of a comparison: a self-contained HTML page, Markdown with pictures beside it, PDF, JSON."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from jaxrl.comparison import figures, tables
from jaxrl.comparison.results import Comparison
from jaxrl.config import text
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.reporting.pages.figures import picture, render
from jaxrl.reporting.pages.page import Section, html_page, require_packages
from jaxrl.reporting.pages.pdf import PACKAGES, pdf_page, sides

TITLE = "Runs compared"
_BY_FORCE = "Compared by force although"


def write(comparison: Comparison, folder: str) -> list[str]:
    """Writes report.html, report.md with its pictures, report.pdf and compare.json; returns their paths.

    Raises:
      ConfigError: the `compare` extra is missing, or the folder cannot be written.
    """
    require_packages("compare", PACKAGES)
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
    picture = render(figures.curves(_printable(comparison)), "png")
    with errors_as(ConfigError, f"`--output` (={file}) cannot be written", OSError):
        epath.Path(file).write_bytes(picture)
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
            picture("Final return of every run", "final", figures.intervals(comparison)),
            picture("Performance profile", "profile", figures.profiles(comparison)),
        ]
    return [
        Section(returns.title, returns),
        picture("Learning curves", "curves", figures.curves(comparison)),
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
