"""Tables that a command prints: in parts on a narrow terminal, whole in a file or a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from jaxrl.config.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_GAP = 2
# The reader of a file or a pipe has no width at which to wrap.
_UNBOUNDED = 10_000


def open_console() -> Console:
    """Standard output, as wide as the terminal; in a file or a pipe as wide as necessary."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_UNBOUNDED)


def show(
    headings: Sequence[str], rows: Sequence[Sequence[str | Text]], *, names: int = 1, title: str = ""
) -> None:
    """Prints a table, whose cells are text without markup or with a style of their own.

    The first `names` columns hold words, and each part of a wide table repeats them.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = open_console()
    encoding = console.encoding
    headings = [printable(heading, encoding) for heading in headings]
    cells = [
        [cell if isinstance(cell, Text) else Text(printable(cell, encoding)) for cell in row] for row in rows
    ]
    widths = [max(map(_length, column)) for column in zip(headings, *cells, strict=True)]
    for number, columns in enumerate(parts(widths, names, console.width)):
        heading = Text(title, style="bold") if title and not number else None
        table = Table(title=heading, title_justify="left", box=None, pad_edge=False)
        for index in columns:
            justify = "left" if index < names else "right"
            table.add_column(Text(headings[index]), justify=justify, header_style="dim", no_wrap=True)  # type: ignore[arg-type]
        for row in cells:
            table.add_row(*(row[index] for index in columns))
        if number:
            print()
        width = max(sum(widths[index] + _GAP for index in columns), _length(title))
        Console(highlight=False, width=width).print(table)


def show_fields(rows: Iterable[tuple[str, str]], indent: int, width: int = _UNBOUNDED) -> None:
    """Prints a name and a text per row; a long text continues in the next line, indented by `indent`.

    Lines are as wide as the terminal, in a file or a pipe `width`. A name that leaves no room has a line of
    its own.
    """
    console = open_console()
    room = max(min(console.width, width) if not console.is_terminal else console.width, indent + 20) - indent
    for name, content in rows:
        head = printable(name, console.encoding)
        shown = printable(content, console.encoding)
        lines = textwrap.wrap(shown, room, break_long_words=False, break_on_hyphens=False)
        if head and len(head) >= indent:
            wrapped = textwrap.wrap(head, indent + room, subsequent_indent="  ", break_on_hyphens=False)
            print(*wrapped, sep="\n")
            head = ""
        for number, line in enumerate(lines or [""] * bool(head)):
            print(f"{'' if number else head:<{indent}}{line}".rstrip())


def parts(widths: Sequence[int], names: int, room: int) -> Iterator[list[int]]:
    """The columns of each part of a table, at most `room` characters wide unless one column exceeds that."""
    first = list(range(names))
    used = sum(widths[i] + _GAP for i in first) - _GAP
    columns = list(first)
    begun = used
    for index in range(names, len(widths)):
        if len(columns) > names and used + _GAP + widths[index] > room:
            yield columns
            used = begun
            columns = list(first)
        columns.append(index)
        used += _GAP + widths[index]
    yield columns


def _length(cell: str | Text) -> int:
    from rich.cells import cell_len

    return cell_len(str(cell))
