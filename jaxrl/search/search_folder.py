"""The folder of a search: its description, the run folders of its trials, and locks."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from jaxrl.config import Config, ConfigError, to_json
from jaxrl.config.local_files import is_remote, replace_text
from jaxrl.runs.child_process import take_lock
from jaxrl.runs.records import require_no_runs, stored_object
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space


class SearchFolder:
    """`study.json`, `trials.jsonl`, `trials/NUMBER`, `verification/NUMBER-seed-SEED`, and the results."""

    def __init__(self, path: str) -> None:
        """Creates the folder; ConfigError if it cannot be created."""
        if is_remote(path):
            raise ConfigError(
                f"`--workdir` (={path!r}) must be a local folder; `storage.sync_to` copies each trial"
            )
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"`--workdir` (={path!r}) cannot be made: {error.strerror}") from error
        self._alive: TextIO | None = None

    def trial(self, number: int) -> Path:
        return self.path / "trials" / f"{number:04d}"

    def verification(self, number: int, seed: int) -> Path:
        return self.path / "verification" / f"{number:04d}-seed-{seed}"

    @contextlib.contextmanager
    def claim(self, config: Config, space: Space, options: SearchOptions) -> Iterator[None]:
        """Writes the description of the search, and counts as active here during the block.

        Raises:
          ConfigError: the folder holds another search, or is or holds runs of none.
        """
        given = _description(config, space, options)
        content = json.dumps(given, indent=2) + "\n"
        stored = stored_object(self.path / "study.json")
        if not stored:
            require_no_runs(str(self.path), own=())
        if stored and (self.path / "trials.jsonl").exists():
            changed = [name for name, value in json.loads(content).items() if stored.get(name) != value]
            if changed:
                raise ConfigError(
                    f"`--workdir` (={self.path}) holds a search with another {' and '.join(changed)}: name "
                    "another folder with --workdir=DIR"
                )
        self.write("study.json", content)
        # The kernel releases it when this process ends, for any reason; trials do not inherit it.
        with (self.path / ".alive.lock").open("a") as self._alive:
            fcntl.flock(self._alive, fcntl.LOCK_SH)
            yield
        self._alive = None

    def is_alone(self) -> bool:
        """True if no other process searches here; runs of a killed one may still be saving."""
        if self._alive is None:
            return True
        try:
            fcntl.flock(self._alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._alive, fcntl.LOCK_SH)
        return True

    @contextlib.contextmanager
    def claim_verification(self) -> Iterator[bool]:
        """Yields True if this process may verify the best trials; only one may at a time."""
        lock = take_lock(self.path / ".verification.lock")
        with lock or contextlib.nullcontext():
            yield lock is not None

    def write(self, name: str, content: str) -> None:
        """Writes a file completely or not at all; ConfigError if it cannot be written."""
        try:
            replace_text(self.path / name, content)
        except OSError as error:
            raise ConfigError(f"{self.path / name} cannot be written: {error}") from error


def study_name(config: Config, space: Space, options: SearchOptions) -> str:
    """A name for the search, the same on every host and for every storage."""
    anywhere = dataclasses.replace(options, storage="")
    text = json.dumps(_description(config, space, anywhere), sort_keys=True)
    return f"jaxrl-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def _description(config: Config, space: Space, options: SearchOptions) -> dict[str, Any]:
    return {"options": options.defining, "space": space.to_json(), "config": to_json(config)}
