"""The files of a registry in a bucket, gs:// or s3://."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jaxrl.config.data_files import parse_json
from jaxrl.config.errors import RunError
from jaxrl.runs.registry.checksums import CHECKSUMS
from jaxrl.runs.storage import bucket

_LARGEST_MODEL = 16 * 2**30
_LARGEST_SMALL_FILE = 2**24
_CLAIM = ".claim"


class BucketModels:
    """Objects: a version is there once its checksums are, and a stage is an object that holds its number."""

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
