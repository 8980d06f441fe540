"""The folder of a run: its files, its lock and its logs."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from etils import epath

from jaxrl.config import Config, ConfigError, changed_fields, from_json, to_json, words
from jaxrl.config.data_files import read_bytes, read_object
from jaxrl.config.errors import RunError
from jaxrl.config.local_files import is_remote, require_no_links
from jaxrl.parallel import process_group
from jaxrl.runs import storage
from jaxrl.runs.checkpoint import Checkpointer, CheckpointError, checkpoint_folder
from jaxrl.runs.records import MEMBERS
from jaxrl.runs.signals import Interruption
from jaxrl.runs.storage.lease import lock_folder

# After this long all processes must see a file that one of them wrote.
_VISIBLE_SECONDS = 3.0
_MARK = ".run"
_LARGEST_MARK = 4096  # bytes of `.run`

log = logging.getLogger(__name__)


class RunFolder:
    """A run's folder, local or gs://.

    It holds config.json, metrics.jsonl, train.log, tensorboard/, checkpoints/ and summary.json; corrupt/
    after a checkpoint was damaged.

    Attributes:
      identity: the identity of the run, stored in its checkpoints; known after `create`.
    """

    def __init__(self, path: str, keep: int = 1, interruption: Interruption | None = None):
        """Takes the path of the folder, local or gs://bucket/folder; creates nothing.

        Args:
          keep: the number of recent checkpoints to keep besides the best.
          interruption: the signals after which a save gives up sooner on a disk that does not answer.

        Raises:
          ConfigError: the path is empty.
        """
        if not path:  # which would be the working folder
            raise ConfigError("`--workdir` (='') must name a folder")
        storage.prepare(path)
        self.path = epath.Path(path)
        self.identity = ""
        self._keep = keep
        self._interruption = interruption or Interruption()
        self._staged: storage.StagedFolder | None = None

    def create(self) -> None:
        """Creates the folder, which all processes of a run share.

        Raises:
          ConfigError: it cannot be created or written, or a process does not see it.
        """
        probe = self.path / ".writable"
        content = process_group.by_first(lambda: self._write_probe(probe))
        seen = _is_visible(probe, content)
        views = process_group.everywhere([seen, socket.gethostname()])
        if process_group.is_first():
            with contextlib.suppress(OSError), storage.as_os_errors():
                probe.unlink()
        for index, (sees, host) in enumerate(views):
            if not sees:
                text = f"process {index} on {host} does not see what process 0 on {views[0][1]} writes there"
                raise ConfigError(f"`--workdir` (={self.path}) must be a folder that all share: {text}")
        self.identity = process_group.by_first(self._identify)

    def _identify(self) -> str:
        """The stored identity; for a new run a new one. It is in `.run` then."""
        if found := self._read_mark():
            return found
        identity = str(self._read_from_checkpoint("run") or uuid.uuid4().hex)
        self._write(_MARK, f"{identity}\n")
        return identity

    @property
    def stored_identity(self) -> str:
        """The identity in `.run`; without that file the newest checkpoint's; "" without either."""
        return self._read_mark() or str(self._read_from_checkpoint("run") or "")

    def _read_mark(self) -> str:
        with contextlib.suppress(OSError, ValueError), storage.as_os_errors():
            if (text := read_bytes(self.path / _MARK, _LARGEST_MARK).decode().strip()).isalnum():
                return text
        return ""

    def _write_probe(self, probe: epath.Path) -> str:
        content = f"{socket.gethostname()} {os.getpid()} {time.time()}"
        storage.require_run_folder("--workdir", str(self.path), writable=True)
        try:
            with storage.as_os_errors():
                self.path.mkdir(parents=True, exist_ok=True)
                storage.write_whole(probe, content)
        except OSError as error:
            raise ConfigError(f"`--workdir` (={self.path}) cannot be written: {error}") from error
        return content

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Locks the folder against other trainers, see `lock_folder`."""
        return lock_folder(self.path)

    @contextlib.contextmanager
    def logs(self) -> Iterator[str]:
        """The local folder for files that grow, during the block.

        For a run on gs:// it is a temporary one, whose files are sent to the bucket at checkpoints, from time
        to time, and at the end.

        Raises:
          ConfigError: files to be continued cannot be read.
        """
        if not is_remote(self.path):
            yield str(self.path)
            return
        with storage.StagedFolder(
            str(self.path), ("metrics.jsonl", "metrics.csv", "train.log")
        ) as self._staged:
            yield str(self._staged.path)

    @property
    def log_folder(self) -> str:
        """The folder of `logs` while it is open."""
        return str(self.path if self._staged is None else self._staged.path)

    @property
    def trace_folder(self) -> str:
        """The local folder for device traces."""
        return os.path.join(self.log_folder, "tensorboard")

    def send_logs(self) -> None:
        """Sends the files of `logs` to the bucket soon."""
        if self._staged is not None:
            self._staged.send_soon()

    @property
    def was_started(self) -> bool:
        """True if a run has started training here."""
        return (self.path / "config.json").exists()

    def set_rows_aside(self) -> list[str]:
        """Renames the files of rows of an earlier run, for a run that starts anew; returns their new names.

        Call it before the first row is written, with `logs` open.
        """
        names = []
        for file in (Path(self.log_folder, name) for name in ("metrics.jsonl", "metrics.csv")):
            if not file.is_file() or file.is_symlink():
                continue
            number = next(n for n in itertools.count(1) if not _numbered_path(file, n).exists())
            file.rename(_numbered_path(file, number))
            names.append(_numbered_path(file, number).name)
        return names

    @cached_property
    def checkpoints(self) -> Checkpointer:
        return Checkpointer(
            os.fspath(self.path / "checkpoints"), keep=self._keep, gives_up=self._interruption.cannot_wait
        )

    def write_config(self, config: Config) -> None:
        self._write_json("config.json", to_json(config))

    def read_config(self) -> Config:
        """The run's configuration; from a checkpoint if config.json is missing or damaged.

        Raises:
          ConfigError: there is none, or it cannot be read.
        """
        file = self.path / "config.json"
        try:
            with storage.as_os_errors():
                data = read_object(file)
            return from_json(data)
        except (OSError, ValueError) as error:
            recovered = self._read_from_checkpoint("config")
            if isinstance(recovered, dict):
                log.warning("%s is missing or damaged: the configuration comes from a checkpoint", file)
                return from_json(recovered)
            if foreign := words.in_place_of_run(str(self.path)):
                raise ConfigError(f"`--workdir` (={self.path}) {foreign}") from error
            if isinstance(error, FileNotFoundError):
                text = f"`--workdir` (={self.path}) holds no config.json: is it a run folder?"
                raise ConfigError(text) from error
            raise ConfigError(f"{file} cannot be read: {error}") from error

    def require_same(self, config: Config) -> None:
        """Refuses to resume from the checkpoints here, if any, with another task or network.

        Raises:
          ConfigError: it names each field that differs, with both values.
        """
        process_group.by_first(lambda: self._require_same(config))

    def _require_same(self, config: Config) -> None:
        if not self.has_checkpoints and not self.has_members:
            return
        if changed := changed_fields(self.read_config(), config):
            raise ConfigError(
                f"`--workdir` (={self.path}) holds a run with {', '.join(changed)}: name another folder, to "
                f"start there from its parameters with --config.init_from={self.path}"
            )

    @property
    def has_checkpoints(self) -> bool:
        """True if there are complete checkpoints, intact or not."""
        try:
            return bool(checkpoint_folder.find(self.path / "checkpoints").steps)
        except OSError:
            return False  # Restoring them reports the error.

    @property
    def has_members(self) -> bool:
        """True if this is the folder of a population."""
        return (self.path / MEMBERS).exists()

    @property
    def has_summary(self) -> bool:
        return (self.path / "summary.json").exists()

    def write_summary(self, summary: dict[str, Any]) -> None:
        self._write_json("summary.json", summary)

    def write_report(self, name: str, content: Mapping[str, Any]) -> epath.Path:
        """Writes NAME.json."""
        return self._write_json(f"{name}.json", content)

    def record_evaluation(self, name: str, result: Mapping[str, Any], png: bytes | None = None) -> list[str]:
        """Writes evaluations/NAME.json, and NAME.png if there is a plot.

        Returns:
          Lines that say where, or that a folder which this user only reads has no record.

        Raises:
          RunError: it cannot be written for another reason, such as a full disk.
        """
        file = self.path / "evaluations" / f"{name}.json"
        try:
            lines = [f"written to {self._write_json(f'evaluations/{name}.json', result)}"]
            if png is not None:
                plot = file.with_suffix(".png")
                plot.write_bytes(png)
                lines.append(f"plot: {plot}")
        except (OSError, ConfigError) as error:
            cause = error.__cause__ or error
            if not isinstance(cause, OSError) or cause.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise RunError(f"{file} cannot be written: {cause}") from error
            return [f"not recorded: {file}: {os.strerror(cause.errno)}"]
        return lines

    def _read_from_checkpoint(self, name: str) -> Any:
        """An entry of the `meta` of the latest checkpoint with an intact record; None without one."""
        with contextlib.suppress(OSError):
            for path in reversed(tuple(checkpoint_folder.find(self.path / "checkpoints").steps.values())):
                with contextlib.suppress(CheckpointError):
                    return checkpoint_folder.read_record(path).meta.get(name)
        return None

    def _write_json(self, name: str, content: Mapping[str, Any]) -> epath.Path:
        return self._write(name, json.dumps(content, indent=2) + "\n")

    def _write(self, name: str, text: str) -> epath.Path:
        """Writes a file completely or not at all; only the first of several processes writes."""
        file = self.path / name
        if not process_group.is_first():
            return file
        try:
            if not is_remote(file):
                require_no_links(self.path, file.parent)
                file.parent.mkdir(parents=True, exist_ok=True)
            storage.write_whole(file, text)
        except OSError as error:
            raise ConfigError(f"{file} cannot be written: {error}") from error
        return file


def _numbered_path(file: Path, number: int) -> Path:
    """metrics.earlier-1.jsonl for metrics.jsonl."""
    return file.with_name(f"{file.stem}.earlier-{number}{file.suffix}")


def _is_visible(probe: epath.Path, content: str) -> bool:
    """True if this process sees the file, which network file systems may show with a delay."""
    deadline = time.monotonic() + (0 if process_group.is_first() else _VISIBLE_SECONDS)
    while True:
        with contextlib.suppress(OSError), storage.as_os_errors():
            if probe.read_text() == content:
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
