"""Numbers, sizes and durations as short text."""

from __future__ import annotations

import math

LONGEST_LINE = 1800  # characters of an error


def number(x: float | None) -> str:
    """About four significant digits; `-` for None."""
    if x is None:
        return "-"
    size = abs(x)
    if not math.isfinite(x) or x == 0:
        return f"{x:g}"
    if size >= 1e6 or size < 1e-3:
        return f"{x:.2e}"
    if size >= 1000:
        return f"{x:,.0f}"
    return f"{x:.{1 if size >= 100 else 2 if size >= 10 else 3 if size >= 1 else 4}f}"


def count(x: float) -> str:
    """A whole number with separators."""
    return f"{round(x):,}"


def counted(number: int, noun: str) -> str:
    """`1 episode`, `2 episodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def pace(x: float | None) -> str:
    """Steps per second, as 950, 25.3k or 1.20M; `-` if unknown."""
    if x is None or not math.isfinite(x):
        return "-"
    if x >= 999_950:
        return f"{x / 1e6:.2f}M"
    return f"{x / 1e3:.1f}k" if x >= 1000 else f"{x:.0f}"


def size(x: float | None) -> str:
    """Bytes in three significant digits, as 950 B, 6.00 MB or 12.3 GB; `-` if unknown."""
    if x is None:
        return "-"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if x >= scale:
            return f"{x / scale:.{2 if x < 10 * scale else 1 if x < 100 * scale else 0}f} {unit}"
    return f"{x:.0f} B"


def seconds(x: float) -> str:
    """A duration in suitable units: 0.4 s, 12 s, 3 min 20 s, 2 h 05 min."""
    if x < 9.95:
        return f"{x:.1f} s"
    whole = round(x)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def interval(x: float) -> str:
    """A duration that may be short: 12.3 ms, else as `seconds`."""
    return f"{1e3 * x:.1f} ms" if x < 1 else seconds(x)


def load(share: float | None, memory: float | None) -> str:
    """Use of a machine, as 87% 1.20 GB; `-` if nothing is known."""
    parts = [] if share is None else [f"{share:.0%}"]
    parts += [] if memory is None else [size(memory)]
    return " ".join(parts) or "-"


def clock(x: float | None) -> str:
    """A duration as h:mm:ss, m:ss below an hour."""
    if x is None:
        return "-:--"
    hours, rest = divmod(int(x), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def printable(text: str, encoding: str | None = None) -> str:
    r"""The text with `?` for characters that a stream of this encoding (default: UTF-8) cannot show.

    Names come from anyone: what moves the cursor or changes colours is written out, as in `\x1b[31m`. Ends of
    lines stay.
    """
    encoding = encoding or "utf-8"
    shown = "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    return shown.encode(encoding, "replace").decode(encoding)


def one_line(message: object) -> str:
    """A message in one printable line; what is longer than `LONGEST_LINE` is cut in the middle."""
    line = printable(" ".join(str(message).split()))
    if len(line) <= LONGEST_LINE:
        return line
    end = LONGEST_LINE // 3  # the rule, or the cause
    return f"{line[: LONGEST_LINE - end]} ... {line[-end:]}"
