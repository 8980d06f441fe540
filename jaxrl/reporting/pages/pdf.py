"""The PDF of a report."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrl.reporting.pages.page import Section, Table

_GREY = (87, 96, 106)
_ORANGE = (200, 80, 0)
_PAGE_WIDTH = 180  # mm of an A4 page without margins
PACKAGES = ("jinja2", "matplotlib", "fpdf", "PIL")  # of a report as page and PDF
_PICTURE_WIDTH = 150
_FILM_WIDTH = 70
_CHARACTER = 1.65  # width in tables, in mm
_MAX_COLUMN = 40


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
    _text(pdf, title, 16, "B")
    _text(pdf, introduction, 9)
    if problems:
        pdf.set_text_color(*_ORANGE)
        _text(pdf, f"{problems_title}: " + "; ".join(problems), 9)
        pdf.set_text_color(0)
    for section in sections:
        _pdf_section(pdf, section)
    with pdf.unbreakable() as block:
        _heading(block, "How to read this")
        block.set_text_color(*_GREY)
        for note in notes:
            _text(block, note, 8)
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
    widths = _widths(section.table)
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
