"""The places of what stages make, and digests of it, the same wherever and whenever it was made."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jaxrl.config import ConfigError
from jaxrl.config.data_files import read_object
from jaxrl.runs.checkpoint import checkpoint_folder
from jaxrl.runs.members import member_folders

FILE = "file"
TREE = "tree"
RUN = "run"
RESULT = "result"
PRESENT = "present"
# Entries on where and when results were made, which do not change them.
_CIRCUMSTANCES = ("versions", "commits", "host", "command", "device")


@dataclass(frozen=True)
class StagePlaces:
    """The places in the folder of a pipeline, as text in settings names them: `{data.folder}`, ..."""

    folder: str

    @property
    def data(self) -> str:
        return f"{self.folder}/data/data"

    @property
    def study(self) -> str:
        return f"{self.folder}/search/study"

    @property
    def winner(self) -> str:
        return f"{self.study}/best_config.py"

    def run(self, stage: str = "train") -> str:
        return f"{self.folder}/{stage}/run"

    @property
    def names(self) -> dict[str, str]:
        return {
            "{data.folder}": self.data,
            "{search.config}": self.winner,
            "{pretrain.run}": self.run("pretrain"),
            "{train.run}": self.run(),
            "{folder}": self.folder,
        }


@dataclass(frozen=True)
class StageOutput:
    """Something that a stage makes.

    Attributes:
      kind: FILE; TREE, a folder of files; RUN, a run folder, by the arrays of its checkpoints;
        RESULT, the JSON of an evaluation, by its numbers; or PRESENT, which need only be there.
    """

    kind: str
    path: str

    def digest(self) -> str | None:
        """Its digest; None if it is missing or cannot be read."""
        try:
            if self.kind == FILE:
                return of_file(self.path)
            if self.kind == TREE:
                return of_tree(self.path)
            if self.kind == PRESENT:
                return PRESENT if os.path.exists(self.path) else None
            return _of_run(self.path) if self.kind == RUN else _of_result(self.path)
        except (OSError, ValueError, ConfigError):
            return None


def of_path(path: str) -> str:
    """The digest of a file or a folder; raises OSError if it cannot be read."""
    return of_tree(path) if os.path.isdir(path) else of_file(path)


def of_text(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def of_file(path: str) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=12)).hexdigest()


def of_tree(folder: str) -> str:
    """The digest of the names and contents of all files in a folder, but hidden ones."""
    root = Path(folder)
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    if not files:
        raise FileNotFoundError(folder)
    return _of_lines(f"{path.relative_to(root).as_posix()} {of_file(str(path))}" for path in files)


def _of_lines(lines: Iterable[str]) -> str:
    return of_text("\n".join(lines))


def _of_run(folder: str) -> str:
    """The digest of the arrays in all checkpoints of a run, or of a population's members."""
    lines = []
    for run in member_folders(folder) or [folder]:
        place = checkpoint_folder.open_folder(run) / "checkpoints"
        for step, path in sorted(checkpoint_folder.find(place).steps.items()):
            arrays = checkpoint_folder.read_record(path).arrays
            lines += [f"{step} {name} {described['digest']}" for name, described in sorted(arrays.items())]
    if not lines:
        raise FileNotFoundError(folder)
    return _of_lines(lines)


def _of_result(path: str) -> str:
    content = {name: x for name, x in read_object(path).items() if name not in _CIRCUMSTANCES}
    return of_text(json.dumps(content, sort_keys=True))
