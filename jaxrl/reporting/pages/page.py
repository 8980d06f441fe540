"""Reports as HTML and PDF, and the HTML page of an episode, to be stepped through without a server."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl.config import flatten, installation, text, versions
from jaxrl.config.version import __version__

_FOLDER = Path(__file__).parent
_GREY = (87, 96, 106)
_ORANGE = (200, 80, 0)
_PAGE_WIDTH = 180  # mm of an A4 page without margins
_PICTURE_WIDTH = 150
_FILM_WIDTH = 70
_CHARACTER = 1.65  # width in tables, in mm
_MAX_COLUMN = 40


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


def require_packages(extra: str, names: Sequence[str] = ("jinja2", "matplotlib"), pdf: bool = False) -> None:
    """Raises ConfigError if a package that a report or its PDF needs is missing; `extra` installs it."""
    installation.require("the report", extra, *names, *(("fpdf", "PIL") if pdf else ()))


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

    loader = jinja2.FileSystemLoader(_FOLDER)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("page.html").render(
        title=title,
        introduction=introduction,
        problems=problems,
        problems_title=problems_title,
        sections=sections,
        notes=notes,
        command=command,
        version=__version__,
    )


def pdf_page(
    *,
    title: str,
    introduction: str,
    problems: Sequence[str],
    problems_title: str,
    sections: Sequence[Section],
    notes: Sequence[str],
) -> bytes:
    """The same content as in `html_page`, on A4; of a video the first picture."""
    import matplotlib
    from fpdf import FPDF

    pdf = FPDF(format="A4")
    pdf.set_margin(15)
    pdf.set_title(title)
    pdf.set_draw_color(205)
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for style, file in (("", "DejaVuSans.ttf"), ("B", "DejaVuSans-Bold.ttf")):
        pdf.add_font("DejaVu", style, fonts / file)
    pdf.add_page()
    _write(pdf, title, 16, "B")
    _write(pdf, introduction, 9)
    if problems:
        pdf.set_text_color(*_ORANGE)
        _write(pdf, f"{problems_title}: " + "; ".join(problems), 9)
        pdf.set_text_color(0)
    for section in sections:
        _pdf_section(pdf, section)
    with pdf.unbreakable() as block:
        _heading(block, "How to read this")
        block.set_text_color(*_GREY)
        for note in notes:
            _write(block, note, 8)
    return bytes(pdf.output())


def _pdf_section(pdf: Any, section: Section) -> None:
    from fpdf.fonts import FontFace

    if section.table is None:
        from PIL import Image

        image = Image.open(io.BytesIO(section.png or section.gif)).convert("RGB")
        width = _FILM_WIDTH if section.gif else _PICTURE_WIDTH
        if pdf.will_page_break(width * image.height / image.width + 18):
            pdf.add_page()
        _heading(pdf, section.title)
        pdf.image(image, w=width)
        return
    if pdf.will_page_break(18 + 8 * min(len(section.table.rows) + 1, 6)):
        pdf.add_page()
    _heading(pdf, section.title)
    pdf.set_font("DejaVu", size=7.5)
    # Characters of each column: enough for its longest cell and the longest word of its heading.
    columns = zip(section.table.headings, *section.table.rows, strict=True)
    longest = (max(map(len, [*heading.split(), *cells])) for heading, *cells in columns)
    widths = tuple(min(3 + length, _MAX_COLUMN) for length in longest)
    with pdf.table(
        text_align=sides(section.table),
        borders_layout="HORIZONTAL_LINES",
        headings_style=FontFace(emphasis="BOLD", color=_GREY),
        align="LEFT",
        col_widths=widths,
        width=min(_PAGE_WIDTH, _CHARACTER * sum(widths)),
        line_height=5,
        padding=(1, 1),
    ) as table:
        for cells in (section.table.headings, *section.table.rows):
            table.row(cells)


def sides(table: Table) -> tuple[str, ...]:
    return tuple("LEFT" if index < table.names else "RIGHT" for index in range(len(table.headings)))


def _heading(pdf: Any, line: str) -> None:
    pdf.ln(4)
    _write(pdf, line, 11, "B")


def _write(pdf: Any, line: str, size: float, style: str = "") -> None:
    pdf.set_font("DejaVu", style, size)
    pdf.multi_cell(0, 1.5 * size / 2.83, line, align="L", new_x="LMARGIN", new_y="NEXT")
    pdf.ln(1)


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
