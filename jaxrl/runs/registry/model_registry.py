"""Models by name: versions that count up, stages that move at once, and conditions on what is deployed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl.config.data_files import parse_json
from jaxrl.config.errors import ConfigError, RunError, did_you_mean, errors_as
from jaxrl.config.local_files import is_remote
from jaxrl.config.sections import COMPARISONS
from jaxrl.runs.registry.model_files import CHECKSUMS, BucketModels, LocalModels, damage

DEFAULT = "results/models"
LATEST = "latest"
STAGES = (LATEST, "staging", "production")
RECORD = "model.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_REMEMBERED = 1000  # moves of a stage
_CONDITION = re.compile(r"\s*([\w./-]+)\s*(>=|<=|>|<)\s*([-+\w.]+)\s*")


def check_name(flag: str, name: str) -> str:
    """Returns the name of a model; raises ConfigError unless it can be one."""
    if not _NAME.fullmatch(name) or name.endswith(".tmp"):
        rule = "must be at most 64 of a-z, A-Z, 0-9, `.`, `_` and `-`, and begin with a letter or digit"
        raise ConfigError(f"`{flag}` (={name!r}) {rule}")
    return name


def check_stage(flag: str, stage: str) -> str:
    """Returns a stage; raises ConfigError unless it is one."""
    if stage not in STAGES:
        raise ConfigError(f"`{flag}` (={stage!r}) must be one of {', '.join(STAGES)}")
    return stage


class ModelRegistry:
    """Models in a local folder or a bucket.

        ROOT/NAME/versions/1/{model.json,policy.json,...,checksums.json}
        ROOT/NAME/{latest,staging,production}   links to versions/N; in a bucket objects that hold N

    A version appears whole and never changes; a stage moves from one to another in one step. So a
    reader finds a whole model at any moment and after any kill.
    """

    def __init__(self, url: str = DEFAULT, flag: str = "--to", writable: bool = False) -> None:
        """Opens a registry, which need not exist; ConfigError if the address cannot be used."""
        self.url = url.rstrip("/") or url
        self._files = (
            BucketModels(self.url, flag, writable) if is_remote(url) else LocalModels(Path(url).expanduser())
        )

    def names(self) -> list[str]:
        """Models that have a version, sorted."""
        with errors_as(RunError, f"{self.url} cannot be read", OSError):
            return [n for n in self._files.folders("") if _NAME.fullmatch(n) and self.versions(n)]

    def versions(self, name: str) -> list[int]:
        """Numbers of the complete versions, ascending."""
        return [
            n for n in self._numbers(name) if self._files.exists(f"{versions_folder(name, n)}/{CHECKSUMS}")
        ]

    def require(self, name: str) -> list[int]:
        """The versions of a model; raises ConfigError if there is no such model."""
        if not (found := self.versions(check_name("NAME", name))):
            known = self.names()
            hint = did_you_mean(name, known) if known else "; it holds no models"
            raise ConfigError(f"{self.url} holds no model {name!r}{hint}")
        return found

    def stages(self, name: str) -> dict[str, int]:
        """The version that each stage points at; stages that point nowhere are left out."""
        there = set(self.versions(name))
        with errors_as(RunError, f"{self.url} cannot be read", OSError):
            found = {stage: self._files.pointer(name, stage) for stage in STAGES}
        return {stage: number for stage, number in found.items() if number in there and number is not None}

    def resolve(self, name: str, wanted: str = LATEST) -> int:
        """The number of a version that is named by its number or its stage.

        Raises:
          ConfigError: there is no such model or version.
          RunError: the registry cannot be read.
        """
        check_name("NAME", name)
        is_number = wanted.isdecimal() and len(wanted) < 10
        stage = "" if is_number else check_stage("STAGE", wanted)
        with errors_as(RunError, f"{self.url} cannot be read", OSError):
            found = int(wanted) if is_number else self._files.pointer(name, stage)
            # A server asks every few seconds, so nothing else is looked at.
            if found is not None and self._files.exists(f"{versions_folder(name, found)}/{CHECKSUMS}"):
                return found
        versions = self.require(name)
        if is_number:
            raise ConfigError(f"{name} has no version {wanted}; it has {_list(versions)}")
        raise ConfigError(f"no version of {name} is {wanted}; `jaxrl models promote` makes one")

    def record(self, name: str, number: int) -> dict[str, Any]:
        """The content of model.json; RunError if it cannot be read."""
        place = f"{versions_folder(name, number)}/{RECORD}"
        with errors_as(RunError, f"{self.url}/{place} cannot be read", OSError, ValueError):
            found = parse_json(self._files.read(place))
        return found if isinstance(found, dict) else {}

    def publish(self, name: str, folder: Path) -> int:
        """Makes a local folder with checksums the next version of a model; returns its number.

        No stage moves. The folder may be moved away.

        Raises:
          RunError: it is damaged, or cannot be written.
        """
        check_name("--name", name)
        if problems := damage(folder):
            raise RunError(f"the model is damaged and was not deployed: {problems[0]}")
        with errors_as(RunError, f"{self.url}/{name} cannot be written", OSError), self._files.lock(name):
            number = max(self._numbers(name), default=0) + 1
            while not self._files.publish(folder, versions_folder(name, number)):
                number += 1
            return number

    def promote(self, name: str, stage: str, number: int) -> int | None:
        """Points a stage at a version; returns the version that it pointed at.

        Raises:
          ConfigError: there is no such version.
          RunError: it is damaged, or the stage cannot be moved.
        """
        check_stage("STAGE", stage)
        if number not in (versions := self.require(name)):
            raise ConfigError(f"{name} has no version {number}; it has {_list(versions)}")
        with self._moving(name, stage, number):
            before = self._files.pointer(name, stage)
            if before != number:
                # The history first: if it is ahead of the pointer, `rollback` still finds its place.
                past = _until(self._history(name, stage), before)
                self._remember(name, stage, [*past, number])
                self._files.point(name, stage, number)
            return before

    def rollback(self, name: str, stage: str) -> tuple[int, int]:
        """Points a stage at the version before; returns (version now, version until now).

        Raises:
          ConfigError: there is none before.
          RunError: that one is damaged, or the stage cannot be moved.
        """
        current = self.resolve(name, check_stage("STAGE", stage))
        past = _until(self._history(name, stage), current)[:-1]
        versions = set(self.versions(name))
        while past and past[-1] not in versions:
            past.pop()
        if not past:
            raise ConfigError(f"{stage} of {name} has no version before {current}")
        with self._moving(name, stage, past[-1]):
            self._files.point(name, stage, past[-1])
            self._remember(name, stage, past)
        return past[-1], current

    @contextmanager
    def _moving(self, name: str, stage: str, number: int) -> Iterator[None]:
        """Keeps others out while a stage moves to an intact version."""
        if problems := self.verify(name, number):
            raise RunError(f"{name} version {number} is damaged, {stage} was not moved: {problems[0]}")
        moved = f"{self.url}/{name}/{stage} cannot be moved"
        with errors_as(RunError, moved, OSError), self._files.lock(name):
            yield

    def verify(self, name: str, number: int) -> list[str]:
        """The damage in a version, a line for each file; raises RunError if it cannot be read."""
        with self.fetch(name, number) as folder:
            return damage(folder)

    def fetch(self, name: str, number: int) -> AbstractContextManager[Path]:
        """A context with a local folder that holds a version; of a bucket a copy that the end deletes."""
        return self._files.fetch(versions_folder(name, number))

    def place(self, name: str, number: int) -> str:
        """The address of a version."""
        return f"{self.url}/{versions_folder(name, number)}"

    def _numbers(self, name: str) -> list[int]:
        """All numbers that were ever taken, also by a deployment that a kill ended."""
        found = (n for n in self._files.folders(f"{name}/versions") if n.isdecimal() and len(n) < 10)
        return sorted(int(n) for n in found)

    def _history(self, name: str, stage: str) -> list[int]:
        """Versions that a stage has pointed at; empty if it is not readable."""
        try:
            found = parse_json(self._files.read(f"{name}/history/{stage}.json"))
        except (OSError, ValueError):
            return []
        listed = found.get("versions") if isinstance(found, Mapping) else None
        return [n for n in listed if isinstance(n, int)] if isinstance(listed, list) else []

    def _remember(self, name: str, stage: str, versions: list[int]) -> None:
        content = json.dumps({"versions": versions[-_MOST_REMEMBERED:]}) + "\n"
        self._files.write(f"{name}/history/{stage}.json", content.encode())


def _until(past: list[int], current: int | None) -> list[int]:
    """`past` up to the last mention of `current`; just that if there is none."""
    if current is None:
        return []
    if current not in past:
        return [current]
    return past[: len(past) - past[::-1].index(current)]


def _list(versions: list[int]) -> str:
    return ", ".join(map(str, versions[-10:]))


def versions_folder(name: str, number: int) -> str:
    return f"{name}/versions/{number}"


class GateClosed(RunError):
    """A condition does not hold, so the steps that depend on it are not done. Its message is one line."""

    exit_code = 3


@dataclass(frozen=True)
class Gate:
    """One condition, such as `success_rate>=0.9`."""

    metric: str
    comparison: str
    bound: float

    @classmethod
    def parse(cls, text: str, flag: str = "--gate") -> tuple[Gate, ...]:
        """Reads conditions that commas separate; ConfigError if one of them is no condition."""
        gates = []
        for part in text.split(","):
            match = _CONDITION.fullmatch(part)
            try:
                bound = float(match[3]) if match else math.nan
            except ValueError:
                bound = math.nan
            if match is None or not math.isfinite(bound):
                raise ConfigError(f"`{flag}` (={text!r}) must be METRIC>=NUMBER, or with <=, > or <")
            gates.append(cls(match[1], match[2], bound))
        return tuple(gates)

    def require(self, metrics: Mapping[str, float]) -> None:
        """Returns if the condition holds.

        Raises:
          ConfigError: the evaluation has no such metric.
          GateClosed: the condition does not hold; a value that is not finite holds no condition.
        """
        if self.metric not in metrics:
            raise ConfigError(
                f"`--gate` (={self}) names a metric that the evaluation has not"
                f"{did_you_mean(self.metric, metrics)}"
            )
        value = metrics[self.metric]
        if not math.isfinite(value) or not COMPARISONS[self.comparison](value, self.bound):
            raise GateClosed(f"the gate {self} is closed: {self.metric} is {value:g}; nothing was deployed")

    def __str__(self) -> str:
        return f"{self.metric}{self.comparison}{self.bound:g}"
