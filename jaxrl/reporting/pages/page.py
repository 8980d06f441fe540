"""HTML pages: of a report, and of one episode, to be stepped through without a server."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl.config import flatten, installation, text, versions
from jaxrl.config.version import __version__

_FOLDER = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells as text; the first `names` columns are words, the others numbers."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1


@dataclasses.dataclass(frozen=True)
class Section:
    """A table, or a picture under a file name; a page shows the first available form."""

    title: str
    table: Table | None = None
    name: str = ""
    svg: bytes = b""
    png: bytes = b""
    gif: bytes = b""

    @property
    def picture(self) -> str:
        """The address of the picture, which holds it; "" of a table."""
        forms = {"svg+xml": self.svg, "png": self.png, "gif": self.gif}
        found = next(((kind, content) for kind, content in forms.items() if content), None)
        return f"data:image/{found[0]};base64,{base64.b64encode(found[1]).decode()}" if found else ""


def table_section(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1
) -> Section:
    """A table of its own section, each cell in one line; a row of dashes if it has none."""
    cells = [tuple(text.one_line(cell) for cell in row) for row in rows]
    return Section(title, Table(title, headings, cells or [("-",) * len(headings)], names))


def require_packages(extra: str, names: Sequence[str] = ("jinja2", "matplotlib")) -> None:
    """Raises ConfigError if a package that a report needs is not installed; `extra` installs it."""
    installation.require("the report", extra, *names)


def html_page(
    *,
    title: str,
    introduction: str,
    problems: Sequence[str],
    sections: Sequence[Section],
    notes: Sequence[str],
    command: str,
    problems_title: str = "",
) -> str:
    """A self-contained page; it lists the `problems` first, and `command` in its footer."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.get_template("page.html")
    return page.render(
        title=title,
        introduction=introduction,
        problems=problems,
        problems_title=problems_title,
        sections=sections,
        notes=notes,
        command=command,
        version=__version__,
    )


def machine_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, value) of the machine of a report's runs: host, devices, cores, memory and versions.

    Args:
      summary: of a run, summary.json, which knows its host and device; {} if there is none.
    """
    import psutil

    said = flatten(summary)
    for name in ("host", "device"):
        if name in said:
            yield name, str(said[name])
    yield "cores", str(os.cpu_count())
    yield "memory", text.size(psutil.virtual_memory().total)
    yield from versions().items()


def episode_page(facts: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    """The page; `rows` are steps as JSON values, `facts` describe the episode.

    Nothing in it is taken for HTML or a script: texts are escaped, and `<` stands nowhere in the data.
    """
    said = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(x)}</dd>" for name, x in facts.items())
    data = json.dumps(list(rows), separators=(",", ":")).replace("<", "\\u003c")
    page = _page_with_script()
    for name, content in {"FACTS": said, "VERSION": __version__, "DATA": data}.items():
        page = page.replace(f"<!--{name}-->", content, 1)
    return page


def script_source() -> str:
    """The source, in a Content-Security-Policy, that lets the script of these pages run and no other."""
    script = _page_with_script().rpartition("<script>")[2].partition("</script>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _page_with_script() -> str:
    script = (_FOLDER / "episode.js").read_text()
    return (_FOLDER / "episode.html").read_text().replace("<!--SCRIPT-->", script, 1)
