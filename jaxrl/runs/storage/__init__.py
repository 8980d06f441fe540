"""Run folders in buckets: checks before a run starts, its lock, files that are appended to, and copies."""

from jaxrl.config.local_files import is_remote
from jaxrl.runs.storage.bucket import (
    as_os_errors,
    entries,
    files_below,
    is_failure,
    open_url,
    prepare,
    reason,
    require_folder,
    require_reachable,
    require_run_folder,
    within_timeout,
    write_whole,
)
from jaxrl.runs.storage.staging import StagedFolder

__all__ = [
    "StagedFolder",
    "as_os_errors",
    "entries",
    "files_below",
    "is_failure",
    "is_remote",
    "open_url",
    "prepare",
    "reason",
    "require_folder",
    "require_reachable",
    "require_run_folder",
    "within_timeout",
    "write_whole",
]
