"""Records of attempts at levels: a line of JSON each, written and read back."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from jaxrl.envs.bounded_files import parse_json, read_bytes
from jaxrl.envs.native.platformer.game.attempt import Attempt
from jaxrl.envs.native.platformer.physics import NUM_ACTIONS

# The fields of `AttemptRecord`, as JSON has them.
_KINDS = {"digest": str, "category": str, "actions": str, "success": bool}
_DIGITS = frozenset("0123456789"[:NUM_ACTIONS])


class RecordError(ValueError):
    """A file of records is not one. The message is one line that names the line at fault."""


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt.

    Attributes:
      digest, category: of the level.
      actions: a digit for the action of each step.
      success: True if they reached the exit.
    """

    digest: str
    category: str
    actions: str
    success: bool

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptRecord:
        """The record of the play so far."""
        level = attempt.level
        return cls(
            digest=level.digest, category=level.category, actions=attempt.actions, success=attempt.success
        )

    def line(self) -> str:
        """The line of JSON, with its end."""
        return json.dumps(dataclasses.asdict(self)) + "\n"


def read_records(file: Path) -> tuple[AttemptRecord, ...]:
    """The attempts of a file, in the order in which they were played.

    Raises:
      OSError: the file cannot be read.
      RecordError: a line is no record, or there is none.
    """
    try:
        lines = read_bytes(file).decode().splitlines()
    except UnicodeDecodeError as error:
        raise RecordError("is no text") from error
    if not lines:
        raise RecordError("has no attempt")
    return tuple(_record(number, line) for number, line in enumerate(lines, 1))


def _record(number: int, line: str) -> AttemptRecord:
    try:
        found = parse_json(line)
    except ValueError as error:
        raise RecordError(f"line {number} is no JSON") from error
    if not isinstance(found, dict) or any(type(found.get(name)) is not kind for name, kind in _KINDS.items()):
        raise RecordError(f"line {number} needs {', '.join(_KINDS)}")
    if not found["actions"] or not _DIGITS.issuperset(found["actions"]):
        raise RecordError(f"line {number}: actions must be digits from 0 to {NUM_ACTIONS - 1}, at least one")
    return AttemptRecord(**{name: found[name] for name in _KINDS})
