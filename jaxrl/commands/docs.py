"""jaxrl docs PAGE: the documentation; without PAGE the list of its pages.

A terminal shows a page with its formatting, a pipe or a file gets its text.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from jaxrl.commands import command_line
from jaxrl.commands.arguments import Argument, CommandArguments
from jaxrl.config import ConfigError
from jaxrl.config.errors import did_you_mean

# A link in the checkout to docs/; a wheel holds its target.
_FOLDER = Path(__file__).parents[1] / "docs"


class _Flags(CommandArguments):
    page = Argument("PAGE", "its name, also as others give it: replay, docs/replay.md")


@command_line.command(__doc__, _Flags, positional=True)
def main(_: _Flags, left: Sequence[str]) -> int:
    pages = _pages()
    if not left:
        width = max(map(len, pages))
        lines = [f"  {name:<{width}}  {_title(page)}" for name, page in pages.items()]
        command_line.show("\n".join(["usage: jaxrl docs PAGE", "", *lines]))
        return 0
    if len(left) > 1:
        raise ConfigError(f"`PAGE` (={' '.join(left)!r}) must be one page")
    given = left[0].partition("#")[0].removeprefix("docs/").removesuffix(".md")
    # The last part of a name will do; a top-level page wins over a tutorial of the same name.
    names = {name.rpartition("/")[2]: name for name in reversed(pages)} | {name: name for name in pages}
    if given not in names:
        raise ConfigError(f"`PAGE` (={left[0]!r}) is no page{did_you_mean(given, names)}")
    text = pages[names[given]].read_text(encoding="utf-8")
    # What rich adds, such as bullets, is in no smaller set of characters.
    if sys.stdout is None or not sys.stdout.isatty() or "utf" not in sys.stdout.encoding.lower():
        command_line.show(text.rstrip())
        return 0
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))
    return 0


def _pages() -> dict[str, Path]:
    """The pages for users by name, top-level ones first."""
    found = {path.relative_to(_FOLDER).with_suffix("").as_posix(): path for path in _FOLDER.rglob("*.md")}
    names = sorted((name for name in found if not name.startswith("design/")), key=lambda x: ("/" in x, x))
    return {name: found[name] for name in names}


def _title(page: Path) -> str:
    with page.open(encoding="utf-8") as stream:
        return next((line[2:].strip() for line in stream if line.startswith("# ")), "")
