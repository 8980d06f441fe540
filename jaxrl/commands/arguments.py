"""The arguments of commands: each is declared once, for its parser, the help and completion in shells."""

from __future__ import annotations

import itertools
import os
import re
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from jaxrl.config import ConfigError, words
from jaxrl.config.errors import did_you_mean
from jaxrl.config.fields import at_least, between, check
from jaxrl.config.overrides import read_value
from jaxrl.runs import storage

_LONGEST_FLAG = 200  # characters of an unknown one that are compared with others
_KINDS: dict[str, type[bool | int | float | str]] = {"bool": bool, "int": int, "float": float, "str": str}
_WIDTH, _GAP = 80, 3  # of the help; columns between a term and what it means


@dataclass(frozen=True)
class Argument:
    """An argument of a command.

    Attributes:
      term: as the help shows it: "CONFIG", "--debug", "--seconds=S".
      help: its line in the help, where "{default}" stands for the default; "" leaves it out of the list.
      kind: of a flag's value: bool (a switch), int, float or str; None if it is left to others.
      default: of a flag that is absent; False of a switch.
      within: the least and the largest number allowed, the latter None if there is none.
    """

    term: str
    help: str = ""
    kind: type[bool | int | float | str] | None = None
    default: Any = None
    within: tuple[Any, Any] | None = None

    @property
    def name(self) -> str:
        """`seconds` of `--seconds=S`."""
        return self.term.removeprefix("--").partition("=")[0]

    @property
    def word(self) -> str:
        """Its beginning on a command line: `--seconds=`; "" unless it is a flag of one name."""
        flag, equals, _ = self.term.partition("=")
        return f"{flag}{equals}" if flag.startswith("--") and "." not in flag else ""


def flag(term: str, help: str = "", default: Any = None, within: tuple[Any, Any] | None = None) -> Any:
    """Declares a flag in the class of a command's flags, which gives its type; see `CommandArguments`."""
    return Argument(term, help, None, default, within)


class _Group(tuple[Argument, ...]):
    """Flags that have their kinds already."""


def group(*arguments: Argument) -> Any:
    """Declares flags that have their kinds already, as `dict[str, Any]`: their values by name."""
    return _Group(arguments)


class CommandArguments:
    """The flags of a command: the class declares them, `parse` returns an instance with their values.

    `seconds: float = flag("--seconds=S", "how long", 1.0, (0.01, None))`; without a default the type is
    `float | None`. Arguments without a type are listed in the help and left to others. Every command has
    --debug.
    """

    debug: bool = flag("--debug", "full tracebacks instead of one line for bad input")

    @classmethod
    def arguments(cls) -> tuple[Argument, ...]:
        """In their order."""
        return tuple(itertools.chain.from_iterable(cls._declared().values()))

    @classmethod
    def _declared(cls) -> dict[str, tuple[Argument, ...]]:
        """The arguments by the name of their attribute: inherited ones first, but --debug last."""
        found: dict[str, tuple[Argument, ...]] = {}
        derived = cls.__mro__[: cls.__mro__.index(CommandArguments)]
        for kind in (*reversed(derived), CommandArguments):
            types = {name: text.removesuffix(" | None") for name, text in kind.__annotations__.items()}
            for name, x in vars(kind).items():
                if isinstance(x, Argument):
                    typed = replace(x, kind=_KINDS[types[name]] if name in types else None)
                    found.setdefault(name, (typed,))
                elif isinstance(x, _Group):
                    found.setdefault(name, x)
        return found

    @classmethod
    def parse(
        cls, argv: Sequence[str], known_only: bool = False, positional: bool = False
    ) -> tuple[Self, list[str]]:
        """Parses the arguments after the program's name; returns the flags and what is left.

        Raises ConfigError for wrong values and empty arguments, for unknown flags unless `known_only`, and
        for an argument that is no flag unless `positional`.
        """
        for given in argv:
            if any("\ud800" <= character <= "\udfff" for character in given):  # what Python cannot decode
                encoding = sys.getfilesystemencoding().upper()
                remedy = "" if encoding == "UTF-8" else "; set PYTHONUTF8=1 for UTF-8"
                raise ConfigError(f"the argument {given!r} is no {encoding}{remedy}")
        arguments = cls.arguments()
        values, left, unknown = _read(arguments, with_home(argv[1:]))
        if not known_only:
            require_no_flags(unknown, [argument.name for argument in arguments if argument.word])
        if "" in left and not known_only:
            raise ConfigError("an argument is empty; is a variable of the shell not set?")
        if left and not known_only and not positional:
            raise ConfigError(f"`{left[0]}` is no flag; flags start with --")
        found = cls()
        for name, declared in cls._declared().items():
            mine = {x.name: values[x.name] for x in declared if x.kind is not None}
            if isinstance(getattr(cls, name), _Group):
                vars(found)[name] = mine
            else:
                vars(found).update((name, value) for value in mine.values())
        return found, left


class RunFlags(CommandArguments):
    """The flags of a command on the folder of a run."""

    run = Argument("RUN", "folder of the run; also as --workdir=RUN")
    workdir: str | None = flag("--workdir=RUN")

    def folder(self, left: Sequence[str]) -> str:
        """The folder, by the only argument left or --workdir; ConfigError if it cannot be reached."""
        if len(left) + bool(self.workdir) > 1:
            named = " and ".join(f"`{name}`" for name in (self.workdir, *left) if name)
            raise ConfigError(f"one run folder is to be named, not {named}")
        if not self.workdir and not any(left):
            raise ConfigError("`--workdir` is missing: name the folder of a run")
        folder = self.workdir or left[0]
        storage.require_run_folder("--workdir", folder)
        return folder


CONFIG_FIELD = Argument("--config.FIELD=VALUE", "changes a field (`jaxrl train --help=all` lists them)")
ENV = Argument("--env=SUITE:NAME", "its environment; without CONFIG the shipped config that suits it")
SAMPLE = flag("--sample", "sample actions instead of taking the most likely ones")
GREEDY = flag(
    "--greedy", "take the most likely actions (default: what was better in the evaluations during training)"
)
CHECKPOINT = flag(
    "--checkpoint=S",
    "which checkpoint: best (default), by evaluation during training, of a run without any the latest; "
    "latest; or a step",
    "best",
)
TRUST = flag(
    "--trust",
    "import the modules that the run's configuration names (module:Class): they can run any code, so only "
    "for trusted runs",
)
# Commands in which it decides something else use `replace(SEED, help=...)`.
SEED = flag("--seed=K", "decides the episodes (default: {default})", 0, within=(0, 2**32 - 1))
JSON = flag("--json", "one JSON object instead of a table")
MINARI = flag("--minari", "also write DIR/data, a Minari data set (extra minari)")


def with_home(argv: Sequence[str]) -> list[str]:
    """Arguments with the home folder for `~`, which shells leave in `--workdir=~/runs`."""
    home = os.path.expanduser("~")
    return [re.sub(r"^(--?[\w.-]+=)?~(?=/|$)", lambda found: (found[1] or "") + home, x) for x in argv]


def sample_choice(sample: bool, greedy: bool) -> bool | None:
    """True with --sample, False with --greedy, None with neither; ConfigError if both are given."""
    if sample and greedy:
        raise ConfigError("`--sample` and `--greedy` exclude each other")
    return True if sample else False if greedy else None


def help_text(introduction: str | None, arguments: Sequence[Argument]) -> str:
    """The help of a command: the first paragraph of its module's docstring, its arguments, the rest."""
    listed = [argument for argument in arguments if argument.help]
    if not listed:
        return str(introduction)
    first, _, rest = str(introduction).partition("\n\n")
    column = 2 + max(len(argument.term) for argument in listed) + _GAP
    lines = [line for argument in listed for line in _lines(argument, column)]
    return "\n".join([first, "", *lines, "", rest])


def _lines(argument: Argument, column: int) -> list[str]:
    default = argument.default
    shown = f"{default:g}" if isinstance(default, float) else str(default)
    return textwrap.wrap(
        argument.help.replace("{default}", shown),
        _WIDTH,
        initial_indent=f"  {argument.term}".ljust(column),
        subsequent_indent=" " * column,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _read(arguments: Sequence[Argument], given: Sequence[str]) -> tuple[dict[str, Any], list[str], list[str]]:
    """The value of each flag by its name, the words that are left, and which of them are unknown flags."""
    declared = {x.name.replace("_", "-"): x for x in arguments if x.kind is not None}
    values = {x.name: bool(x.default) if x.kind is bool else x.default for x in declared.values()}
    left: list[str] = []
    unknown: list[str] = []
    words = iter(given)
    for word in words:
        if word == "--":
            left += words
            break
        flag, equals, text = word.partition("=")
        # A dash alone stands for standard input, and one before a number is its sign.
        if not re.match("--?[A-Za-z]", flag):
            left.append(word)
            continue
        argument = declared.get(flag.lstrip("-").replace("_", "-"))
        if argument is None:
            left.append(word)
            unknown.append(word)
        elif argument.kind is bool and not equals:
            values[argument.name] = True
        else:
            text = text if equals else next(words, "--")
            if not equals and text.startswith("--"):
                raise ConfigError(f"`{flag}` needs a value: {argument.term}")
            values[argument.name] = _value(argument, text)
    return values, left, unknown


def _value(argument: Argument, text: str) -> Any:
    kind, (low, high) = argument.kind, argument.within or (None, None)
    if kind is str and not text:
        raise ConfigError(f"`--{argument.name}=` is empty; is a variable of the shell not set?")
    rules = () if low is None else (at_least(low),) if high is None else (between(low, high),)
    return check(f"--{argument.name}", read_value(text, kind), kind, *rules)


def require_no_flags(
    given: Sequence[str],
    known: Collection[str],
    fields: Collection[str] = (),
    flags_of_fields: Mapping[str, str] | None = None,
) -> None:
    """Raises ConfigError with all unknown flags, each with a hint, if there are any.

    `known` are the command's flags; if these set `fields` (names), `flags_of_fields` are the flags by field.
    """
    found = {}
    for argument in given:
        flag = argument.partition("=")[0]
        name = flag.lstrip("-")
        other = words.other_flag(name, known)
        hint = f"; here it is `--{other}`" if other else words.flag_hint(name, fields, flags_of_fields)
        found[flag] = hint or did_you_mean(name[:_LONGEST_FLAG], known, prefix="--")
    if len(found) == 1:
        raise ConfigError("".join(f"unknown flag `{flag}`{hint}" for flag, hint in found.items()))
    if found:
        each = [f"`{flag}` ({hint.removeprefix('; ')})" for flag, hint in found.items()]
        raise ConfigError(f"unknown flags: {', '.join(each)}")
