"""Buckets: clients of gs:// and s3://, and checks before a run starts."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

from jaxrl.config import installation
from jaxrl.config.errors import ConfigError
from jaxrl.config.local_files import is_remote, replace_text

# For a check of a bucket before a run starts; the client alone would try for half a minute.
TIMEOUT_SECONDS = 10.0
T = TypeVar("T")
_LONGEST_REASON = 300  # characters
_ROLE = "the role roles/storage.objectUser on the bucket is enough"
_LOGIN = "`gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS=KEYFILE"
_ADVICE = {401: f"log in with {_LOGIN}", 403: _ROLE}
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
# Packages whose exceptions are failures of the storage, not of this program.
_CLIENTS = ("aiohttp", "aiobotocore", "botocore", "fsspec", "gcsfs", "google", "requests", "s3fs", "urllib3")


class Unreachable(ConfigError):
    """A bucket or folder cannot be read, as without credentials or a network."""


def prepare(path: str | os.PathLike[str]) -> None:
    """Sets up the client of `gs://` before the first use of such a path; does nothing for local paths.

    Raises:
      ConfigError: the package that it needs is not installed.
    """
    if not os.fspath(path).startswith("gs://"):
        return
    # If true, the client asks another service through gRPC for the kind of bucket.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    installation.require(os.fspath(path), "gcs", "fsspec", "gcsfs")
    import fsspec

    # A cached listing would never expire, and checkpoints are not written through this client.
    fsspec.config.conf.setdefault("gcs", {})["use_listings_cache"] = False
    # They log tracebacks of errors that they also raise, and each place without credentials.
    for client in ("gcsfs", "google.auth"):
        logging.getLogger(client).setLevel(logging.CRITICAL)


def filesystem() -> Any:
    """The client of `gs://`, shared with etils; call `prepare` first."""
    import fsspec

    return fsspec.filesystem("gcs", finalize_on_close=True)


def split(path: str | os.PathLike[str]) -> tuple[str, str]:
    """(bucket, name of the object) of `gs://bucket/name` or `s3://bucket/name`."""
    bucket, _, name = os.fspath(path).partition("://")[2].partition("/")
    return bucket, name.rstrip("/")


def open_url(flag: str, url: str, writable: bool = False) -> tuple[Any, str]:
    """(fsspec client, path as it knows it) of a folder: local, gs://bucket/folder or s3://bucket/folder.

    Args:
      writable: True if objects will be created there.

    Raises:
      ConfigError: the address is of another kind, its client is not installed, or the bucket is unusable.
    """
    import fsspec

    given = f"`{flag}` (={url!r})"
    if url.startswith("gs://"):
        require_run_folder(flag, url, writable)
        return filesystem(), "/".join(split(url))
    if url.startswith("s3://"):
        bucket, prefix = split(url)
        installation.require(given, "s3", "s3fs")
        client = fsspec.filesystem("s3", use_listings_cache=False)
        within_timeout(f"{given} cannot be", lambda: _try_s3(client, bucket, prefix))
        return client, "/".join(split(url)).rstrip("/")
    if is_remote(url):
        raise ConfigError(f"{given} must be a local folder, gs://bucket/folder or s3://bucket/folder")
    return fsspec.filesystem("file"), os.path.abspath(os.path.expanduser(url))


def require_client(url: str) -> None:
    """Raises ConfigError if the package that an address needs is not installed."""
    if url.startswith("s3://"):
        installation.require(f"`storage.sync_to` (={url!r})", "s3", "s3fs")
    prepare(url)


def require_run_folder(flag: str, path: str, writable: bool = False) -> None:
    """Checks within seconds that a run can live in `path`, gs://bucket/folder; local folders are not checked.

    With `writable` an object is created and deleted there.

    Raises:
      ConfigError: the address is of another kind, or the bucket is missing, forbidden or out of reach.
    """
    if not is_remote(path):
        return
    given = f"`{flag}` (={path!r})"
    if path.startswith("s3://"):
        raise ConfigError(
            f"{given} cannot be on S3: Orbax writes no checkpoints there. Use gs:// or a local folder, and "
            f"copy that with `jaxrl sync FOLDER {path}`"
        )
    bucket, name = split(path)
    if not path.startswith("gs://") or not bucket or not name:
        raise ConfigError(f"{given} must be a local folder or gs://bucket/folder")
    if not _BUCKET.fullmatch(bucket):
        raise ConfigError(
            f"{given} names no bucket: {bucket!r} must be 3 to 63 of a-z, 0-9, `-`, `_` and `.`"
        )
    prepare(path)
    within_timeout(f"{given} cannot be", lambda: _try(path, writable))


def require_reachable(flag: str, path: str) -> None:
    """Raises ConfigError unless the bucket of `path`, a folder or a pattern, answers within seconds."""
    if not is_remote(path):
        return
    given = f"`{flag}` (={path!r})"
    if not path.startswith("gs://") or not _BUCKET.fullmatch(split(path)[0]):
        raise ConfigError(f"{given} must be a local folder or gs://bucket/folder")
    prepare(path)
    within_timeout(f"{given} cannot be", lambda: _try(path, writable=False))


def require_folder(flag: str, path: str) -> None:
    """As `require_run_folder`, for a folder that is only read and must exist.

    Raises:
      ConfigError: as there, or the folder is empty.
    """
    require_run_folder(flag, path)
    if is_remote(path):
        from etils import epath

        with as_os_errors():
            if not epath.Path(path).is_dir():
                raise ConfigError(f"`{flag}` (={path!r}) must be a folder; there is none in the bucket")


def entries(folder: str | os.PathLike[str]) -> dict[str, bool]:
    """Names directly in a folder of a bucket, each with True for a folder; empty if it is missing.

    Raises:
      OSError: it cannot be listed.
    """
    bucket, name = split(folder)
    with as_os_errors():
        try:
            listed = filesystem().ls(f"{bucket}/{name}", detail=True)
        except FileNotFoundError:
            return {}
    names = ((entry["name"].rstrip("/").removeprefix(f"{bucket}/{name}/"), entry) for entry in listed)
    return {short: entry["type"] == "directory" for short, entry in names if "/" not in short}


def files_below(folder: str | os.PathLike[str]) -> list[str]:
    """Addresses of all objects below a folder of a bucket, sorted; OSError if they cannot be listed."""
    with as_os_errors():
        return [f"gs://{name}" for name in filesystem().find("/".join(split(folder)))]


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Replaces a file, local or gs://, completely or not at all; raises OSError."""
    from etils import epath

    if not is_remote(path):
        replace_text(path, text)
        return
    with as_os_errors():
        epath.Path(path).write_text(text)  # An object appears once it is complete.


def reason(error: BaseException) -> str:
    """The message of a storage client's exception, on one line."""
    message = getattr(error, "message", "") or str(error)
    text = " ".join((message.decode() if isinstance(message, bytes) else str(message)).split())
    # Addresses of requests mean nothing to users.
    text = re.sub(r"Forbidden: \S+ ", "Forbidden: ", text)
    advice = _ADVICE.get(_status(error), "")
    text = text[:_LONGEST_REASON] or type(error).__name__
    return f"{text} ({advice})" if advice else text


@contextlib.contextmanager
def as_os_errors() -> Iterator[None]:
    """Turns exceptions of storage clients inside the block into `OSError` with one line."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if is_failure(error):
            raise OSError(reason(error)) from error
        raise


def is_failure(error: BaseException) -> bool:
    """True for an exception of a storage client."""
    return type(error).__module__.partition(".")[0] in _CLIENTS


def _status(error: BaseException) -> int:
    """The HTTP status of Google's client, or 0."""
    if str(error).startswith("Forbidden:"):
        return 403
    code = str(getattr(error, "code", None) or "")
    return int(code) if code.isdigit() else 0


def _try(path: str, writable: bool) -> None:
    """Lists the folder, and with `writable` writes and deletes an object, as a run does."""
    client = filesystem()
    bucket, name = split(path)
    doing = "read"
    try:
        client.call("GET", "b/{}/o", bucket, prefix=f"{name}/", maxResults="1")
        if writable:
            probe = f"{bucket}/{name}/.writable"
            doing = "written"
            client.pipe_file(probe, b"")
            doing = "deleted from"
            with contextlib.suppress(FileNotFoundError):  # Another process of the run was faster.
                client.call("DELETE", "b/{}/o/{}", bucket, f"{name}/.writable")
    except FileNotFoundError as error:
        create = f"`gcloud storage buckets create gs://{bucket}` makes one"
        raise ConfigError(f"used: there is no bucket gs://{bucket}; {create}") from error
    except Exception as error:
        raise Unreachable(f"{doing}: {reason(error)}") from error


def within_timeout(prefix: str, work: Callable[[], T]) -> T:
    """Runs `work` in a thread, which is abandoned after `TIMEOUT_SECONDS` seconds.

    Raises:
      Unreachable: `work` raised or took too long; the message begins with `prefix`.
      ConfigError: it raised one, whose words are kept.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="storage probe", daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    if thread.is_alive():
        raise Unreachable(f"{prefix} reached in {TIMEOUT_SECONDS:.0f} s{_why_unreachable()}")
    if failed:
        if isinstance(failed[0], ConfigError):
            raise type(failed[0])(f"{prefix} {failed[0]}") from failed[0]
        raise Unreachable(f"{prefix} read: {reason(failed[0])}") from failed[0]
    return done[0]


def _try_s3(client: Any, bucket: str, prefix: str) -> None:
    try:
        # A policy may allow no more than this prefix.
        client.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
    except FileNotFoundError as error:
        raise ConfigError(f"used: there is no bucket s3://{bucket}") from error


def _why_unreachable() -> str:
    host = os.environ.get("STORAGE_EMULATOR_HOST") or "https://storage.googleapis.com"
    url = urlsplit(host if "://" in host else f"http://{host}")
    where = f"{url.hostname}:{url.port or (443 if url.scheme == 'https' else 80)}"
    try:
        socket.create_connection((url.hostname or "", int(where.rpartition(":")[2])), 2.0).close()
    except OSError as error:
        return f": {where}: {error.strerror or error}"
    return f": {where} answers, but not in time, or with errors"
