"""The files of a registry, on a disk or in a bucket, gs:// or s3://, and the checksums of a model."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxrl.config.data_files import open_regular, parse_json, read_bytes, read_object
from jaxrl.config.errors import RunError
from jaxrl.config.local_files import PARTIAL, no_link, replacing, require_no_links
from jaxrl.runs.storage import bucket

CHECKSUMS = "checksums.json"  # size and SHA-256 of each file of a model; written last
_TARGET = re.compile(r"versions/([0-9]{1,9})")
_LARGEST_MODEL = 16 * 2**30
_LARGEST_SMALL_FILE = 2**24
_CLAIM = ".claim"


class LocalModels:
    """A folder whose versions are renamed into place and whose stages are symbolic links.

    Every method may raise OSError.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def folders(self, path: str) -> list[str]:
        """Names of the folders in a folder, sorted; empty if it is missing."""
        try:
            entries = os.scandir(self._root / path)
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in found if not name.startswith("."))

    def exists(self, path: str) -> bool:
        """True if there is such a file."""
        return (self._root / path).is_file()

    def read(self, path: str) -> bytes:
        """The content of a small file."""
        return read_bytes(self._root / path, _LARGEST_SMALL_FILE)

    def write(self, path: str, content: bytes) -> None:
        """Replaces a small file at once."""
        with replacing(self._place_of(path)) as stream:
            stream.write(content)

    def pointer(self, name: str, stage: str) -> int | None:
        """The number of the version that a stage points at."""
        try:
            target = os.readlink(self._root / name / stage)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL):
                return None
            raise
        match = _TARGET.fullmatch(target)
        return int(match[1]) if match else None

    def point(self, name: str, stage: str, number: int) -> None:
        """Moves a stage in one step."""
        link = self._place_of(f"{name}/{stage}")
        new = link.with_name(f".{stage}{PARTIAL}")
        new.unlink(missing_ok=True)  # From a kill.
        new.symlink_to(f"versions/{number}")
        os.replace(new, link)
        _flush(link.parent)

    def publish(self, folder: Path, path: str) -> bool:
        """Makes the files of a local folder appear at `path` together; False if that is taken."""
        target = self._place_of(path)
        new = target.with_name(f".{target.name}{PARTIAL}")
        shutil.rmtree(new, ignore_errors=True)  # From a kill; the lock ensures that nobody writes it now.
        shutil.copytree(folder, new)
        new.chmod(stat.S_IMODE(target.parent.stat().st_mode))  # Not a temporary folder's.
        for file in (*new.rglob("*"), new):
            _flush(file)
        try:
            os.rename(new, target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            shutil.rmtree(new, ignore_errors=True)
            return False
        _flush(target.parent)
        return True

    @contextlib.contextmanager
    def fetch(self, path: str) -> Iterator[Path]:
        """A local folder with the files below `path`."""
        yield self._root / path

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Keeps other writers of a model out; free when the process ends, for any reason."""
        file = self._place_of(f"{name}/.lock")
        with os.fdopen(no_link(os.fspath(file), os.O_RDWR | os.O_CREAT), "r+") as stream:
            with contextlib.suppress(OSError):  # A file system may have no locks.
                fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def _place_of(self, path: str) -> Path:
        """The place of a file, in a folder that exists and is reached without links."""
        place = self._root / path
        require_no_links(self._root, place.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


def _flush(path: Path) -> None:
    """Waits until a file or the entries of a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class BucketModels:
    """Objects: a version is there once its checksums are, and a stage is an object that holds its number.

    The methods are those of `LocalModels`; they may also raise ConfigError, for a bucket that fails.
    """

    def __init__(self, url: str, flag: str, writable: bool) -> None:
        self._client, self._root = bucket.open_url(flag, url, writable)
        self._url = url

    def folders(self, path: str) -> list[str]:
        place = f"{self._root}/{path}".rstrip("/")
        with bucket.as_os_errors():
            try:
                listed = self._client.ls(place, detail=True, refresh=True)
            except FileNotFoundError:
                return []
        names = (x["name"].rstrip("/").removeprefix(f"{place}/") for x in listed if x["type"] == "directory")
        return sorted(name for name in names if name and "/" not in name and not name.startswith("."))

    def exists(self, path: str) -> bool:
        with bucket.as_os_errors():
            return bool(self._client.isfile(f"{self._root}/{path}"))

    def read(self, path: str) -> bytes:
        with bucket.as_os_errors():
            content: bytes = self._client.cat_file(f"{self._root}/{path}", start=0, end=_LARGEST_SMALL_FILE)
        if len(content) == _LARGEST_SMALL_FILE:
            raise OSError(f"it is larger than {_LARGEST_SMALL_FILE >> 20} MiB")
        return content

    def write(self, path: str, content: bytes) -> None:
        with bucket.as_os_errors():
            self._client.pipe_file(f"{self._root}/{path}", content)

    def pointer(self, name: str, stage: str) -> int | None:
        try:
            found = parse_json(self.read(f"{name}/{stage}.json"))
        except (FileNotFoundError, ValueError):
            return None
        number = found.get("version") if isinstance(found, dict) else None
        return number if isinstance(number, int) else None

    def point(self, name: str, stage: str, number: int) -> None:
        # An object appears once it is complete, and replaces the old one then.
        self.write(f"{name}/{stage}.json", (json.dumps({"version": number}) + "\n").encode())

    def publish(self, folder: Path, path: str) -> bool:
        with bucket.as_os_errors():
            try:
                # Refused by the bucket if it exists: no two deployments write one version.
                self._client.pipe_file(f"{self._root}/{path}/{_CLAIM}", b"taken\n", mode="create")
            except FileExistsError:
                return False
            files = sorted(file for file in folder.rglob("*") if file.is_file())
            for file in sorted(files, key=lambda file: file.name == CHECKSUMS):
                name = file.relative_to(folder).as_posix()
                self._client.put_file(str(file), f"{self._root}/{path}/{name}")
        return True

    @contextlib.contextmanager
    def fetch(self, path: str) -> Iterator[Path]:
        """A copy in a temporary folder; names that lead out of it are refused."""
        place = f"{self._root}/{path}"
        with tempfile.TemporaryDirectory(prefix="jaxrl-model-") as temporary:
            folder = Path(temporary)
            try:
                with bucket.as_os_errors():
                    found = self._client.find(place, detail=True)
                    if sum(int(x["size"]) for x in found.values()) > _LARGEST_MODEL:
                        raise OSError(f"it is larger than {_LARGEST_MODEL >> 30} GiB")
                    for name in found:
                        self._copy(name, name.removeprefix(f"{place}/"), folder)
            except OSError as error:
                raise RunError(f"{self._url}/{path} cannot be read: {bucket.reason(error)}") from error
            yield folder

    def _copy(self, name: str, inner: str, folder: Path) -> None:
        if inner == _CLAIM:
            return
        if inner.startswith("/") or ".." in inner.split("/"):
            raise OSError(f"{inner!r} leads out of the folder")
        target = folder / inner
        target.parent.mkdir(parents=True, exist_ok=True)
        self._client.get_file(name, str(target))

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Nothing: versions are claimed one by one, and of two that move a stage the later one wins."""
        yield


def write_checksums(folder: Path) -> None:
    """Writes the file with size and SHA-256 of all other files of a folder."""
    files = {
        path.relative_to(folder).as_posix(): _description_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != CHECKSUMS
    }
    (folder / CHECKSUMS).write_text(json.dumps({"files": files}, indent=1) + "\n")


def damage(folder: Path) -> list[str]:
    """The differences from the checksums, a line for each file; empty for an intact model.

    Files that the checksums do not list are damage too: a reader might take them for the model's.
    """
    try:
        listed = read_object(folder / CHECKSUMS).get("files")
    except (OSError, ValueError) as error:
        return [f"{CHECKSUMS}: {getattr(error, 'strerror', None) or error}"]
    if not isinstance(listed, dict):
        return [f"{CHECKSUMS}: it lists no files"]
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()}
    problems = [f"{name}: not listed" for name in sorted(found - {*listed, CHECKSUMS})]
    for name, wanted in sorted(listed.items()):
        if name not in found:
            problems.append(f"{name}: missing")
        elif (folder / name).is_symlink():
            problems.append(f"{name}: a symbolic link")
        else:
            try:
                same = _is_as(folder / name, wanted)
            except OSError as error:
                problems.append(f"{name}: {error.strerror or error}")
                continue
            problems += [] if same else [f"{name}: not as it was deployed"]
    return problems


def _is_as(path: Path, wanted: Any) -> bool:
    """Compares the size first: a file of another one, however large, is not read."""
    size = wanted.get("size") if isinstance(wanted, dict) else None
    return path.stat().st_size == size and _description_of(path) == wanted


def _description_of(path: Path) -> dict[str, Any]:
    with open_regular(path) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
        return {"size": stream.tell(), "sha256": digest}
