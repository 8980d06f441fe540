"""The commands of `jaxrl COMMAND`: one module each, with its flags, one call, and what is printed.

The docstring of a module is what its `--help` prints, from `jaxrl COMMAND ARGUMENTS: what it does.` on; its
arguments are listed after the first paragraph.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from jaxrl.config.errors import did_you_mean
from jaxrl.config.text import one_line
from jaxrl.config.version import __version__

if TYPE_CHECKING:
    from jaxrl.commands.arguments import Argument

# By what they are for, as `jaxrl` lists them.
GROUPS = {
    "train": ("train", "pretrain", "search", "pipeline", "experiment", "launch"),
    "look at runs": ("evaluate", "watch", "dashboard", "compare", "tournament", "play"),
    "use a policy": ("export", "deploy", "models", "serve", "convert"),
    "environments and data": ("environments", "record", "prepare-data", "verify-data"),
    "speed and machine": (
        "benchmark",
        "inference-benchmark",
        "architectures",
        "doctor",
        "preflight",
        "profile-summary",
    ),
    "files and help": ("sync", "verify-checkpoint", "docs", "completion"),
}
COMMANDS = tuple(command for group in GROUPS.values() for command in group)


def run(argv: Sequence[str] | None = None) -> int:
    """Runs `jaxrl COMMAND ...`; returns the exit code (2: no such command)."""
    _, *arguments = sys.argv if argv is None else argv
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("--help", "-h"):
        return _show(_usage())
    command, *rest = arguments
    if command == "--version":
        return _show(f"jaxrl {__version__}")
    if command not in COMMANDS:
        is_flag = command.startswith("-")
        hint = "; a command comes before its flags" if is_flag else did_you_mean(command, COMMANDS)
        print("error:", one_line(f"unknown command `{command}`{hint}"), file=sys.stderr)
        return 2
    # A name such as my_env:Recall is a module of the working folder, as it is for `python -m jaxrl`. It comes
    # last: what lies there, such as a run from elsewhere, must not stand in for an installed package.
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    return module_of(command).main([f"jaxrl {command}", *rest])


def _show(text: str) -> int:
    from jaxrl.commands import command_line  # which a command loads, if there is one

    command_line.show(text)
    return 0


def module_of(command: str) -> ModuleType:
    return importlib.import_module(f"jaxrl.commands.{command.replace('-', '_')}")


def arguments_of(command: str) -> tuple[Argument, ...]:
    """The arguments of a command, as its help lists them; none of one that hands them on."""
    module = module_of(command)
    return getattr(module.main, "arguments", getattr(module, "ARGUMENTS", ()))


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = []
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:"]
        for command in commands:
            first = str(module_of(command).__doc__).partition("\n")[0]
            lines.append(f"  {command:<{width}}  {first.partition(': ')[2].rstrip('.')}")
    lines += ["", "jaxrl COMMAND --help lists its arguments, jaxrl docs PAGE shows the docs/PAGE.md"]
    lines.append("that messages name, jaxrl --version prints the version.")
    return "\n".join(["usage: jaxrl COMMAND [ARGUMENTS]", *lines])
