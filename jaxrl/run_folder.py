"""The folder of one run: what is written where."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from etils import epath

from jaxrl.checkpoint import Checkpointer
from jaxrl.config import Config, ConfigError, from_json, to_json


class RunFolder:
    """A run's folder, local or gs://.

    config.json, metrics.jsonl, train.log, tensorboard/, checkpoints/, summary.json
    """

    def __init__(self, path: str, keep: int = 1):
        """`keep`: how many recent checkpoints to keep besides the best."""
        self.path = epath.Path(path)
        self._keep = keep

    def create(self) -> None:
        """Makes the folder.

        Raises:
          ConfigError: it cannot be made or written to.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise ConfigError(f"`--workdir` (={self.path}) cannot be written: {error}") from error

    @cached_property
    def checkpoints(self) -> Checkpointer:
        return Checkpointer(str(self.path / "checkpoints"), keep=self._keep)

    def write_config(self, config: Config) -> None:
        self._write("config.json", to_json(config))

    def read_config(self) -> Config:
        """The configuration that the run was trained with.

        Raises:
          ConfigError: there is none, or it cannot be read.
        """
        file = self.path / "config.json"
        if not file.exists():
            raise ConfigError(f"`--workdir` (={self.path}) holds no config.json: is it a run folder?")
        try:
            data = json.loads(file.read_text())
        except ValueError as error:
            raise ConfigError(f"{file} cannot be read: {error}") from error
        if not isinstance(data, dict):
            raise ConfigError(f"{file} must hold a JSON object")
        return from_json(data)

    def require_same(self, config: Config) -> None:
        """Refuses to go on with another task or network than that of the checkpoints here, if any.

        Raises:
          ConfigError: with every such field and both values.
        """
        if self.checkpoints.latest_step() is None:
            return
        stored, given = self.read_config(), config
        changed = [
            f"`{name}` (={theirs!r} there, {ours!r} now)"
            for name, theirs, ours in fixed_fields(stored, given)
            if theirs != ours
        ]
        if changed:
            raise ConfigError(f"`--workdir` (={self.path}) holds a run with {', '.join(changed)}")

    @property
    def has_summary(self) -> bool:
        return (self.path / "summary.json").exists()

    def write_summary(self, summary: dict[str, Any]) -> None:
        self._write("summary.json", summary)

    def write_evaluation(self, name: str, result: dict[str, Any]) -> epath.Path:
        folder = self.path / "evaluations"
        folder.mkdir(parents=True, exist_ok=True)
        return self._write(f"evaluations/{name}.json", result)

    def _write(self, name: str, content: dict[str, Any]) -> epath.Path:
        file = self.path / name
        file.write_text(json.dumps(content, indent=2) + "\n")
        return file


def fixed_fields(stored: Config, given: Config) -> Iterator[tuple[str, Any, Any]]:
    """(name, stored, given) of each field that a resumed run may not change.

    Budgets, intervals and hyperparameters may; what the state depends on may not.
    """
    yield "seed", stored.seed, given.seed
    yield "ppo.rollout_length", stored.ppo.rollout_length, given.ppo.rollout_length
    for section in ("env", "network"):
        theirs, ours = getattr(stored, section), getattr(given, section)
        for field in dataclasses.fields(theirs):
            yield f"{section}.{field.name}", getattr(theirs, field.name), getattr(ours, field.name)
    for name in ("observations", "rewards"):
        yield f"normalize.{name}", getattr(stored.normalize, name), getattr(given.normalize, name)
