"""Run folders in a bucket: what must hold before a run starts, its lock, and files that are appended to."""

from jaxrl.metrics.files import is_remote
from jaxrl.runs.storage.bucket import (
    as_os_errors,
    entries,
    files_below,
    is_failure,
    open_url,
    prepare,
    reason,
    require_folder,
    require_run_folder,
    within_patience,
)
from jaxrl.runs.storage.lease import Lease
from jaxrl.runs.storage.staging import StagedFolder

__all__ = [
    "Lease",
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
    "require_run_folder",
    "within_patience",
]
