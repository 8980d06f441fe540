"""jaxrl models ACTION: lists, shows, promotes, rolls back and verifies models.

  jaxrl models list                      all models, their versions and stages
  jaxrl models show NAME[@VERSION]       the record of one (default: latest)
  jaxrl models promote NAME@VERSION STAGE    STAGE points at that version
  jaxrl models rollback NAME STAGE       STAGE points at the version before
  jaxrl models verify NAME[@VERSION]     compares files with their checksums

VERSION is a number, latest, staging or production. A stage moves in one step,
and only to a version that is intact. Exit code 1: something is damaged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from jaxrl.commands import command_line
from jaxrl.commands.arguments import Argument, CommandArguments, flag
from jaxrl.config import ConfigError
from jaxrl.config.errors import did_you_mean
from jaxrl.config.text import counted
from jaxrl.runs.registry import DEFAULT, LATEST, ModelRegistry, check_stage

_COUNTS = {"list": (0, 0), "show": (1, 1), "promote": (2, 2), "rollback": (2, 2), "verify": (0, 1)}


class _Flags(CommandArguments):
    action = Argument("ACTION", "list, show, promote, rollback or verify, as below")
    registry: str = flag("--registry=DIR", "a folder, gs:// or s3:// (default: {default})", DEFAULT)


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    action, *rest = left or ["list"]
    if action not in _COUNTS:
        raise ConfigError(f"`ACTION` (={action!r}) is none{did_you_mean(action, _COUNTS)}")
    low, high = _COUNTS[action]
    if not low <= len(rest) <= high:
        takes = f"{low} arguments" if low == high else f"{low} to {high} arguments"
        raise ConfigError(f"`{action}` takes {takes}, not {len(rest)}: `jaxrl models --help` shows them")
    writes = action in ("promote", "rollback")
    registry = ModelRegistry(flags.registry, "--registry", writable=writes)
    if action == "list":
        return _list(registry)
    if action == "show":
        return _show(registry, rest[0])
    if action == "verify":
        return _verify(registry, rest)
    given, stage = rest
    if action == "promote":
        name, number = _version(registry, given)
        was = registry.promote(name, check_stage("STAGE", stage), number)
    else:
        if "@" in given:
            raise ConfigError(f"`NAME` (={given!r}) is a name alone here, without @VERSION")
        name = given
        number, was = registry.rollback(name, check_stage("STAGE", stage))
    command_line.say(f"{stage} of {name} is version {number}{f', was {was}' if was else ''}")
    return 0


def _list(registry: ModelRegistry) -> int:
    names = registry.names()
    if not names:
        command_line.say(f"{registry.url} holds no models; `jaxrl deploy RUN` makes one")
    for name in names:
        versions = registry.versions(name)
        stages = registry.stages(name)
        said = ", ".join(f"{stage} {number}" for stage, number in stages.items())
        command_line.say(f"{name:<24} {counted(len(versions), 'version'):<12}  {said}")
    return 0


def _show(registry: ModelRegistry, given: str) -> int:
    name, number = _version(registry, given)
    command_line.say(json.dumps(registry.record(name, number), indent=2))
    stages = [stage for stage, at in registry.stages(name).items() if at == number]
    command_line.say(f"version {number}: {registry.place(name, number)} {' '.join(stages)}".rstrip())
    return 0


def _verify(registry: ModelRegistry, given: Sequence[str]) -> int:
    if given:
        chosen = [_version(registry, given[0])]
    else:
        chosen = [(name, number) for name in registry.names() for number in registry.versions(name)]
    damaged = 0
    for name, number in chosen:
        problems = registry.verify(name, number)
        damaged += bool(problems)
        command_line.say(f"{name} version {number}: {'damaged' if problems else 'intact'}")
        for problem in problems:
            command_line.say(f"  {problem}")
    return 1 if damaged else 0


def _version(registry: ModelRegistry, given: str) -> tuple[str, int]:
    name, _, wanted = given.partition("@")
    return name, registry.resolve(name, wanted or LATEST)
