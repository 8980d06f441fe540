"""The folder of an experiment, NAME_TIMESTAMP: its options, its log, its results."""

from __future__ import annotations

import datetime
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jaxrl.config import ConfigError
from jaxrl.config.data_files import read_object
from jaxrl.config.local_files import is_remote, replace_text
from jaxrl.runs.child_process import take_lock
from jaxrl.runs.storage.copy import sync

_log = logging.getLogger(__name__)
_OPTIONS = "config.json"


class ExperimentFolder:
    """Files of an experiment; each is written completely or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def new(cls, output: str, name: str) -> ExperimentFolder:
        """A folder that is not there yet; nothing is made."""
        if is_remote(output):
            raise ConfigError(
                f"`--output-dir` (={output!r}) must be a local folder; --s3-bucket keeps copies"
            )
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        return cls(Path(output).expanduser().absolute() / f"{name}_{stamp}")

    @classmethod
    def open(cls, given: str) -> tuple[ExperimentFolder, dict[str, Any]]:
        """An experiment that has begun, and its options; ConfigError if there is none."""
        path = Path(given).expanduser().absolute()
        try:
            options = read_object(path / _OPTIONS)["options"]
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"`--resume-from` (={given!r}) is no experiment: {_OPTIONS} {error}") from error
        if not isinstance(options, dict):
            raise ConfigError(f"`--resume-from` (={given!r}) is no experiment: {_OPTIONS} holds no options")
        return cls(path), options

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Makes the folder, and keeps other processes out during the block.

        Raises:
          ConfigError: another process has it, or it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be made: {error.strerror}") from error
        if (lock := take_lock(self.path / ".lock")) is None:
            raise ConfigError(f"another process runs the experiment {self.path}")
        with lock:
            yield

    def write(self, name: str, value: Mapping[str, Any] | str) -> None:
        """Writes a file: text, or JSON values."""
        text = value if isinstance(value, str) else json.dumps(value, indent=2) + "\n"
        replace_text(self.path / name, text)

    def write_options(self, options: Mapping[str, Any]) -> None:
        self.write(_OPTIONS, options)


def copy_files(folder: Path, target: str) -> None:
    """Copies the files of an experiment, without its cells' files, to another folder or a bucket.

    Raises:
      ConfigError: the target cannot be used.
      RunError: a file could not be copied.
    """
    with tempfile.TemporaryDirectory() as place:
        for file in folder.iterdir():
            if file.is_file() and not file.name.startswith("."):
                shutil.copy2(file, place)
        sync(place, target, tell=_log.debug)
