"""The flags of `jaxrl train` that set fields of the configuration."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from ml_collections import ConfigDict

from jaxrl.commands.arguments import require_no_flags
from jaxrl.commands.training_arguments import (
    ARGUMENTS,
    ENVS_PER_WORKER,
    FLAGS_OF_FIELDS,
    LEARNER,
    SHORT_FLAGS,
)
from jaxrl.config import ConfigError, words
from jaxrl.config.algorithms import algorithm_of, section_of
from jaxrl.config.converted_counts import multiply_workers
from jaxrl.config.declarations import declared_fields
from jaxrl.config.fields import at_least, check
from jaxrl.config.overrides import override, read_value

_FLAGS = {"help", *(argument.name for argument in ARGUMENTS if argument.word)}


class Override(NamedTuple):
    """A flag, the field that it sets, and the text of its value."""

    flag: str
    field: str
    text: str


def split_overrides(left: Sequence[str]) -> tuple[list[str], list[Override]]:
    """Returns what is no flag, and what `--flag=text` and `--flag text` set."""
    positional: list[str] = []
    found: list[Override] = []
    unknown: list[str] = []
    # Alone it is the environment's own curriculum.
    following = [*left[1:], "--"]
    arguments = iter(
        "--curriculum=auto" if argument == "--curriculum" and after.startswith("--") else argument
        for argument, after in zip(left, following, strict=False)
    )
    for argument in arguments:
        flag, equals, text = argument.partition("=")
        name = flag.lstrip("-")
        if not flag.startswith("-"):
            positional.append(argument)
            continue
        if not is_of_config(name):
            if name == "print-config":
                raise ConfigError(f"`{flag}` (={text!r}) must be yaml or json, or have no value for Python")
            if name in _FLAGS and equals:
                raise ConfigError(f"`{flag}` takes no value, not `{argument}`")
            unknown.append(flag)
            continue
        if not equals:
            text = next(arguments, "--")
            if text.startswith("--"):
                raise ConfigError(f"`{flag}` needs a value: {flag}=VALUE")
        found.append(_override_of(flag, name, text))
    if "--env-id" in {flag.replace("_", "-") for flag in unknown}:
        raise ConfigError(_of_cleanrl(left))
    require_no_flags(unknown, _FLAGS, declared_fields(), FLAGS_OF_FIELDS)
    return positional, found


def _of_cleanrl(left: Sequence[str]) -> str:
    """The error about a command line of CleanRL, with ours."""
    ours: list[str] = []
    others: list[str] = []
    arguments = [x for x in left if x.startswith("--")]
    for argument, after in zip(left, [*left[1:], "--"], strict=True):
        if argument not in arguments:
            continue
        flag, equals, text = argument.partition("=")
        text = text if equals else "" if after.startswith("--") else after
        field = words.field_of(flag.lstrip("-"))
        short = FLAGS_OF_FIELDS.get(field, "").partition("=")[0]
        if field == "env.name":
            ours.append(f"--env={text}")
        elif flag.lstrip("-").replace("_", "-") in SHORT_FLAGS:
            ours.append(f"{flag}={text}")
        elif field and text:
            ours.append(f"{short or f'--config.{field}'}={text}")
        else:
            others.append(flag)
    line = shlex.join(["jaxrl", "train", *ours])
    left_out = f"; see docs/coming_from.md for {', '.join(others)}" if others else ""
    return f"this is a command line of CleanRL, which reads here `{line}`{left_out}"


def is_of_config(name: str) -> bool:
    """True if the flag `name` sets a field: `config.seed`, or `seed`."""
    return name.startswith("config.") or name.replace("_", "-") in SHORT_FLAGS


def _override_of(flag: str, name: str, text: str) -> Override:
    """The field that a flag sets, and its text; the value of a short flag is scaled to the field's unit."""
    short = SHORT_FLAGS.get(name.replace("_", "-"))
    if short is None:
        return Override(flag, name.removeprefix("config."), text)
    if short.scale == 1:
        return Override(flag, short.field, text)
    try:
        return Override(flag, short.field, repr(short.scale * float(text)))
    except ValueError as error:
        raise ConfigError(f"`{flag}` (={text!r}) must be a number") from error


def set_fields(config: ConfigDict, overrides: Sequence[Override]) -> list[str]:
    """Sets fields, each by one kind of flag: `--steps` and `--config.stop.steps` together are refused.

    Returns:
      lines on the value that a flag gave.
    """
    flags: dict[str, str] = {}
    of_workers = [given for given in overrides if given.field == ENVS_PER_WORKER]
    overrides = [given for given in overrides if given.field != ENVS_PER_WORKER]
    # First the algorithm, whose class declares the fields.
    for flag, field, text in sorted(overrides, key=lambda given: given.field != "algorithm"):
        if field.startswith(f"{LEARNER}."):
            field = section_of(algorithm_of(config)).name + field.removeprefix(LEARNER)
        if flags.setdefault(field, flag) != flag:
            raise ConfigError(f"`{flags[field]}` and `{flag}` both set `{field}`: leave one out")
        override(config, field, text)
    curriculum = config.curriculum
    if "curriculum.num_stages" in flags and not (
        curriculum.file or curriculum.stages or curriculum.difficulties
    ):
        override(config, "curriculum.file", "auto")  # a number of stages needs some
    if not of_workers:
        return []
    flag, _, text = of_workers[-1]
    if "env.num_envs" in flags:
        raise ConfigError(f"`{flags['env.num_envs']}` and `{flag}` both set `env.num_envs`: leave one out")
    count = multiply_workers(config, check(flag, read_value(text, int), int, at_least(1)))
    return [f"{flag}={text} of {max(1, config.host.num_workers)} workers: {count} environments"]
