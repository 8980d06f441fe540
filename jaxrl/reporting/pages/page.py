"""The HTML page of a report."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from jaxrl.version import __version__


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells as text; the first `names` columns are words, the others numbers."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1


@dataclasses.dataclass(frozen=True)
class Section:
    """A table, or a picture under a file name."""

    title: str
    table: Table | None = None
    name: str = ""
    svg: bytes = b""
    png: bytes = b""

    @property
    def picture(self) -> str:
        return base64.b64encode(self.svg).decode()


def html_page(
    *,
    title: str,
    introduction: str,
    problems: Sequence[str],
    sections: Sequence[Section],
    notes: Sequence[str],
    command: str,
) -> str:
    """A self-contained page; it lists the `problems` that were overridden, and `command` in its footer."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.get_template("page.html")
    return page.render(
        title=title,
        introduction=introduction,
        problems=problems,
        sections=sections,
        notes=notes,
        command=command,
        version=__version__,
    )
