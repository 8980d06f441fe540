"""Reports of a comparison: a self-contained HTML page, Markdown with pictures beside it, PDF, JSON."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etils import epath

from jaxrl.comparison import figures, tables
from jaxrl.comparison.results import Comparison
from jaxrl.config import installation
from jaxrl.config.errors import ConfigError
from jaxrl.metrics import text
from jaxrl.reporting.pages.figures import render
from jaxrl.reporting.pages.page import Section, Table, html_page

TITLE = "Runs compared"
_GREY, _ORANGE = (87, 96, 106), (200, 80, 0)
_PAGE_WIDTH = 180  # mm of an A4 page without margins
_PICTURE_WIDTH = 150
_CHARACTER = 1.65  # width in tables, in mm
_MAX_COLUMN = 40


def write(comparison: Comparison, folder: str) -> list[str]:
    """Writes report.html, report.md with its pictures, report.pdf and compare.json; returns their paths.

    Raises:
      ConfigError: the `compare` extra is missing, or the folder cannot be written.
    """
    try:
        shown = _printable(comparison)
        sections = _sections(shown)
        files: dict[str, bytes] = {
            "report.html": _html(shown, sections).encode(),
            "report.md": _markdown(shown, sections).encode(),
            "report.pdf": _pdf(shown, sections),
            "compare.json": (json.dumps(dataclasses.asdict(comparison), indent=2) + "\n").encode(),
        }
    except ModuleNotFoundError as error:
        raise ConfigError(_missing(error)) from error
    files |= {f"{section.name}.png": section.png for section in sections if section.png}
    place = epath.Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (place / name).write_bytes(content)
    except OSError as error:
        raise ConfigError(f"`--output` (={folder}) cannot be written: {error}") from error
    return [str(place / name) for name in files]


def write_curves(comparison: Comparison, file: str) -> str:
    """Writes the learning curves as a picture, FILE.png; returns its path; raises as `write` does."""
    try:
        picture = render(figures.curves(_printable(comparison)), "png")
    except ModuleNotFoundError as error:
        raise ConfigError(_missing(error)) from error
    try:
        epath.Path(file).write_bytes(picture)
    except OSError as error:
        raise ConfigError(f"`--output` (={file}) cannot be written: {error}") from error
    return file


def _missing(error: ModuleNotFoundError) -> str:
    return f"reports need the `compare` extra: {installation.command('compare')} ({error})"


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

    def picture(title: str, name: str, figure: Any) -> Section:
        svg, png = (render(figure, kind) for kind in ("svg", "png"))
        return Section(title, None, name, svg, png)

    return [
        Section(returns.title, returns),
        picture("Learning curves", "curves", figures.curves(comparison)),
        picture("Final return of every run", "final", figures.intervals(comparison)),
        picture("Performance profile", "profile", figures.profiles(comparison)),
        Section(costs.title, costs),
        *(Section(table.title, table) for table in rest),
    ]


def _html(comparison: Comparison, sections: Sequence[Section]) -> str:
    return html_page(
        title=TITLE,
        introduction=tables.introduction(comparison),
        problems=comparison.problems,
        sections=sections,
        notes=tables.notes(comparison),
        command="compare",
    )


def _markdown(comparison: Comparison, sections: Sequence[Section]) -> str:
    lines = [f"# {TITLE}", "", _escape(tables.introduction(comparison)), ""]
    if comparison.problems:
        lines += ["**Compared by force although:**", ""]
        lines += [*(f"- {_escape(problem)}" for problem in comparison.problems), ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        if section.table is None:
            lines += [f"![{section.title}]({section.name}.png)", ""]
            continue
        rule = [{"LEFT": "---", "RIGHT": "---:"}[side] for side in _sides(section.table)]
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


def _pdf(comparison: Comparison, sections: Sequence[Section]) -> bytes:
    import matplotlib
    from fpdf import FPDF

    pdf = FPDF(format="A4")
    pdf.set_margin(15)
    pdf.set_title(TITLE)
    pdf.set_draw_color(205)
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for style, file in (("", "DejaVuSans.ttf"), ("B", "DejaVuSans-Bold.ttf")):
        pdf.add_font("DejaVu", style, fonts / file)
    pdf.add_page()
    _text(pdf, TITLE, 16, "B")
    _text(pdf, tables.introduction(comparison), 9)
    if comparison.problems:
        pdf.set_text_color(*_ORANGE)
        _text(pdf, "Compared by force although " + "; ".join(comparison.problems), 9)
        pdf.set_text_color(0)
    for section in sections:
        _pdf_section(pdf, section)
    with pdf.unbreakable() as block:
        _heading(block, "How to read this")
        block.set_text_color(*_GREY)
        for note in tables.notes(comparison):
            _text(block, note, 8)
    return bytes(pdf.output())


def _pdf_section(pdf: Any, section: Section) -> None:
    import io

    from fpdf.fonts import FontFace

    if section.table is None:
        from PIL import Image

        image = Image.open(io.BytesIO(section.png))
        if pdf.will_page_break(_PICTURE_WIDTH * image.height / image.width + 18):
            pdf.add_page()
        _heading(pdf, section.title)
        pdf.image(image, w=_PICTURE_WIDTH)
        return
    if pdf.will_page_break(18 + 8 * min(len(section.table.rows) + 1, 6)):
        pdf.add_page()
    _heading(pdf, section.title)
    pdf.set_font("DejaVu", size=7.5)
    widths = _widths(section.table)
    with pdf.table(
        text_align=_sides(section.table),
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


def _sides(table: Table) -> tuple[str, ...]:
    return tuple("LEFT" if index < table.names else "RIGHT" for index in range(len(table.headings)))


def _widths(table: Table) -> tuple[int, ...]:
    """Characters of each column: enough for its longest cell and the longest word of its heading."""
    columns = zip(table.headings, *table.rows, strict=True)
    return tuple(
        min(3 + max(map(len, [*heading.split(), *cells])), _MAX_COLUMN) for heading, *cells in columns
    )


def _heading(pdf: Any, line: str) -> None:
    pdf.ln(4)
    _text(pdf, line, 11, "B")


def _text(pdf: Any, line: str, size: float, style: str = "") -> None:
    pdf.set_font("DejaVu", style, size)
    pdf.multi_cell(0, 1.5 * size / 2.83, line, align="L", new_x="LMARGIN", new_y="NEXT")
    pdf.ln(1)
