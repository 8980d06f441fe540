"""jaxrl search CONFIG --space=FILE: searches values of fields, one run per trial.

Every trial is a run folder, DIR/trials/NUMBER. DIR/best_config.py is the best
as a config file for jaxrl train, DIR/trials.jsonl lists all trials.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from jaxrl.commands import command_line, run_arguments
from jaxrl.commands.arguments import Argument, CommandArguments, flag, group, require_no_flags
from jaxrl.commands.field_flags import FLAGS_OF_FIELDS, is_of_config
from jaxrl.config import ConfigError
from jaxrl.config.declarations import algorithm_of, declared_fields
from jaxrl.config.fields import declarations
from jaxrl.runs.signals import Interruption, catch_signals
from jaxrl.search.search_options import SearchOptions

_DECLARED = {declared.name: declared for declared in declarations(SearchOptions)}
_VALUES = {"metric": "KEY", "seed": "K", "workdir": "DIR"}  # as the help shows them


def _argument(name: str) -> Any:
    declared = _DECLARED[name]
    kinds = (declared.kind, *get_args(declared.kind))
    kind = int if int in kinds else float if float in kinds else str
    shown = _VALUES.get(name) or {int: "N", float: "X", str: name[0].upper()}[kind]
    return Argument(f"--{name}={shown}", declared.help, kind)


class _Flags(CommandArguments):
    config = Argument("CONFIG", "a config file, or the name of a shipped one; or --config=")
    space: str | None = flag(
        "--space=FILE",
        "which fields vary and how, YAML or JSON, such as ppo.learning_rate: {log: [1e-5, 1e-2]} "
        "(docs/search.md)",
    )
    options: dict[str, Any] = group(*(_argument(name) for name in _DECLARED if name != "workdir"))
    env = Argument("--env=SUITE:NAME", "the environment; as for jaxrl train")
    config_field = Argument(
        "--config.FIELD=VALUE", "changes a field for all trials, such as --config.stop.steps=100000"
    )
    workdir: str | None = _argument("workdir")


@command_line.command(__doc__, _Flags, known_only=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    with catch_signals() as interruption:
        return _search(flags, left, interruption)


def _search(flags: _Flags, left: Sequence[str], interruption: Interruption) -> int:
    names = {x: x.partition("=")[0].lstrip("-") for x in left if x.startswith("-")}
    unknown = [x for x, name in names.items() if name not in ("config", "env") and not is_of_config(name)]
    known = ("config", "help", *(argument.name for argument in _Flags.arguments() if argument.word))
    require_no_flags(unknown, known, declared_fields(), FLAGS_OF_FIELDS)
    if not flags.space:
        raise ConfigError("`--space` is missing: name a file with the fields to vary (docs/search.md)")

    from jaxrl.search.optimization import search
    from jaxrl.search.space import Space

    given = {name: value for name, value in flags.options.items() if value is not None}
    options = SearchOptions(**given)  # Before anything else is read: its errors are about the flags.
    arguments = run_arguments.parse_training(["jaxrl", *left])
    space = Space.read(flags.space, algorithm_of(arguments.config))
    name = os.path.dirname(arguments.workdir)  # runs/CONFIG
    workdir = flags.workdir or os.path.join(name, f"search-{options.method}")
    command_line.require_writable_folder("workdir", workdir)
    arguments.announce()
    search(arguments.config, space, replace(options, workdir=workdir), interruption)
    if interruption.signum is not None:
        print(f"{interruption.name}: the same command continues the search", file=sys.stderr)
    return interruption.exit_code
