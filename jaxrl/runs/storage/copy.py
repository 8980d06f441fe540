"""Copies of run folders between disks and buckets, with a manifest of what was copied."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import tempfile
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from jaxrl.config import text
from jaxrl.config.data_files import parse_json
from jaxrl.config.errors import ConfigError, RunError
from jaxrl.config.local_files import is_remote, replacing, require_no_links
from jaxrl.runs.storage.bucket import Unreachable, as_os_errors, is_failure, open_url, reason, within_timeout

MANIFEST = "manifest.json"
# The last file of a checkpoint in a bucket, which completes it; a local folder is complete with its name.
_COMMITTED = "commit_success.txt"
_STEP = re.compile(r"((?:.*/)?checkpoints/)(memory/)?([0-9]+)(?=/)")
# Locks, and files about to be renamed or deleted.
_TRANSIENT = re.compile(
    r"(^|/)(\.lock|\.writable|\.[^/]+\.part|[^/]*\.tmp|\d+\.(orbax-checkpoint-tmp|deleted)[^/]*/.*)$"
)
_CHUNK = 1 << 22
_IN_MEMORY = 1 << 26  # bytes; larger files go through a temporary file
_SAVED_EVERY = 50  # files between writes of the manifest, from which an interrupted copy continues


@dataclasses.dataclass(frozen=True)
class CopiedFile:
    """One line of a manifest: bytes, SHA-256 ("" while unknown) and time of change."""

    size: int
    sha256: str
    time: str


class StoredFolder:
    """A folder on a disk or in a bucket."""

    def __init__(
        self,
        name: str,
        url: str,
        writable: bool = False,
        metadata: Mapping[str, str] = types.MappingProxyType({}),
    ) -> None:
        """Opens the folder.

        Args:
          writable: True if files will be written.
          metadata: entries of the objects that are written to a bucket.

        Raises:
          ConfigError: the address is of another kind, its client is not installed, or it is unusable.
        """
        self.name = name
        self.url = url.rstrip("/") or url
        self.local = not is_remote(url)
        self.client, self.root = open_url(name, self.url, writable)
        self._metadata = dict(metadata)
        key = "Metadata" if self.url.startswith("s3://") else "metadata"
        self._marks = {key: self._metadata} if metadata and not self.local else {}

    def files(self) -> dict[str, CopiedFile]:
        """All files below the folder, without checksums; empty if it is missing.

        Raises:
          ConfigError: it cannot be read.
        """
        prefix = f"`{self.name}` (={self.url!r}) cannot be"
        found = within_timeout(prefix, lambda: self.client.find(self.root, detail=True))
        files = {
            name.removeprefix(f"{self.root}/"): CopiedFile(int(info["size"]), "", _time(info))
            for name, info in found.items()
            if info["type"] == "file" and not info.get("islink") and name != self.root
        }
        for path in files:
            if path.startswith("/") or ".." in path.split("/"):
                raise ConfigError(
                    f"`{self.name}` (={self.url!r}) holds {path!r}, which leads out of the folder"
                )
        return files

    def manifest(self) -> dict[str, CopiedFile]:
        """Files by path, as listed by the last copy to this folder.

        Raises:
          ConfigError: the manifest is damaged.
        """
        try:
            with as_os_errors():
                content = parse_json(self.client.cat_file(f"{self.root}/{MANIFEST}"))
            return {path: CopiedFile(**described) for path, described in content["files"].items()}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self.url}/{MANIFEST} cannot be read: {reason(error)}") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problem = f"{self.url}/{MANIFEST} is no manifest of this program: delete it to copy everything"
            raise ConfigError(problem) from error

    def write_manifest(self, source: str, files: Mapping[str, CopiedFile]) -> None:
        listed = {path: dataclasses.asdict(files[path]) for path in sorted(files)}
        content = json.dumps({"source": source, **self._metadata, "files": listed}, indent=1) + "\n"
        self.write(MANIFEST, [content.encode()])

    def copy_to(self, path: str, other: StoredFolder) -> CopiedFile:
        """Copies a file, which appears in `other` only when complete; returns its size and checksum.

        Raises:
          FileNotFoundError: there is no such file.
        """
        digest = hashlib.sha256()
        size = 0
        # Read whole before anything is written: a client interrupted in mid-file would store half of it.
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as whole:
            with self.client.open(f"{self.root}/{path}", "rb") as stream:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
                    size += len(chunk)
                    whole.write(chunk)
            whole.seek(0)
            other.write(path, iter(lambda: whole.read(_CHUNK), b""))
        return CopiedFile(size, digest.hexdigest(), "")

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Writes a file; on a disk it never follows a link in the folder."""
        target = f"{self.root}/{path}"
        if self.local:
            require_no_links(self.root, os.path.dirname(target))
            os.makedirs(os.path.dirname(target), exist_ok=True)
        chunks = iter(chunks)
        first = next(chunks, b"")
        if not first and not self.local:
            self.client.pipe_file(
                target, b"", **self._marks
            )  # A stream would leave the marks of an empty file out.
            return
        with replacing(target) if self.local else self.client.open(target, "wb", **self._marks) as stream:
            stream.write(first)
            for chunk in chunks:
                stream.write(chunk)


@dataclasses.dataclass(frozen=True)
class CopyReport:
    """Paths copied, unchanged, and gone before they could be copied; bytes copied."""

    copied: tuple[str, ...]
    unchanged: tuple[str, ...]
    vanished: tuple[str, ...]
    size: int


def _place(folder: str) -> str:
    """Begins with the place of every folder around it."""
    return (folder if is_remote(folder) else os.path.realpath(os.path.expanduser(folder))).rstrip("/") + "/"


def sync(
    source: str,
    destination: str,
    dry_run: bool = False,
    tell: Callable[[str], None] = print,
    metadata: Mapping[str, str] = types.MappingProxyType({}),
) -> CopyReport:
    """Copies the files that have changed since the last copy.

    Args:
      source, destination: local folders, or gs://bucket/folder, s3://bucket/folder.
      tell: called with a line for each file that is copied.
      metadata: entries of objects in a bucket, and of the manifest.

    Raises:
      ConfigError: one of them cannot be used.
      RunError: a file could not be copied; the manifest lists the copied ones.
    """
    theirs = StoredFolder("SOURCE", source)
    files = theirs.files()
    if _place(destination).startswith(_place(source)):
        raise ConfigError(f"`DESTINATION` (={destination!r}) must lie outside of `SOURCE` (={source!r})")
    if not files:
        raise ConfigError(f"`SOURCE` (={source!r}) must be a folder with files; there is none")
    there: dict[str, CopiedFile] = {}
    known: dict[str, CopiedFile] = {}
    try:
        ours = StoredFolder("DESTINATION", destination, not dry_run, metadata)
        known, there = ours.manifest(), ours.files()
    except Unreachable as error:
        if not dry_run:
            raise
        # For example before there are credentials: everything would be copied.
        tell(f"{error}; taken for empty")
    paths = sorted((p for p in files if p != MANIFEST and not _TRANSIENT.search(p)), key=_copy_order)
    waiting = [p for p in paths if not _is_there(files[p], known.get(p), there.get(p))]
    unchanged = tuple(p for p in paths if p not in set(waiting))
    if dry_run:
        for path in waiting:
            tell(f"would copy  {text.size(files[path].size):>9}  {path}")
        return CopyReport(tuple(waiting), unchanged, (), sum(files[p].size for p in waiting))
    copied = []
    vanished = []
    try:
        for path in waiting:
            try:
                written = theirs.copy_to(path, ours)
            except FileNotFoundError:
                if path in theirs.files():
                    raise
                vanished.append(path)
                continue
            known[path] = dataclasses.replace(written, time=files[path].time)
            copied.append(path)
            tell(f"copied  {text.size(written.size):>9}  {path}")
            if len(copied) % _SAVED_EVERY == 0:
                ours.write_manifest(source, known)
        _mark_complete(ours, paths, vanished, there)
    except Exception as error:
        with contextlib.suppress(Exception):
            ours.write_manifest(source, known)
        if isinstance(error, OSError) or is_failure(error):
            done = f"{len(copied)} of {len(waiting)} files copied; run the same command to continue"
            raise RunError(f"{source} to {destination}: {reason(error)}; {done}") from error
        raise
    if copied:
        ours.write_manifest(source, known)
    return CopyReport(tuple(copied), unchanged, tuple(vanished), sum(known[p].size for p in copied))


def _is_there(file: CopiedFile, copied: CopiedFile | None, there: CopiedFile | None) -> bool:
    if copied is None or there is None:
        return False
    return file.size == copied.size == there.size and file.time == copied.time


def _mark_complete(
    folder: StoredFolder, paths: Sequence[str], vanished: Sequence[str], there: Mapping[str, CopiedFile]
) -> None:
    """Marks checkpoints that were copied from a disk as complete in a bucket."""
    if not folder.url.startswith("gs://"):
        return
    steps = {match[0] for path in paths if (match := _STEP.match(path))}
    for step in sorted(steps):
        mark = f"{step}/{_COMMITTED}"
        if mark not in paths and mark not in there and not any(p.startswith(f"{step}/") for p in vanished):
            folder.write(mark, [])


def _copy_order(path: str) -> tuple[str, bool, bool, str]:
    """Sort key: checkpoint by checkpoint, each after its memory, and last the file that completes one."""
    match = _STEP.match(path)
    step = f"{match[1]}{match[3]}" if match else path
    return step, match is not None and match[2] is None, path.endswith(_COMMITTED), path


def _time(info: Mapping[str, Any]) -> str:
    found = next((info[key] for key in ("mtime", "LastModified", "updated") if info.get(key)), 0.0)
    if isinstance(found, str):
        found = datetime.fromisoformat(found)
    moment = found if isinstance(found, datetime) else datetime.fromtimestamp(float(found), UTC)
    return moment.isoformat()
