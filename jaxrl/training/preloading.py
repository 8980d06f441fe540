"""Imports what a run needs late in a thread, while XLA compiles its programs outside of Python."""

from __future__ import annotations

import contextlib
import importlib
import threading

from jaxrl.config import Config
from jaxrl.envs.adapters.deferred import deferred_imports

# tensorboardX imports them for buckets if they are installed: three quarters of the time that it takes.
_CLIENTS_OF_BUCKETS = ("boto3", "google.cloud.storage")


def preload(config: Config) -> None:
    """Begins to import what the first row and the first checkpoint of a run need; returns at once."""
    threading.Thread(target=_load, args=("tensorboard" in config.log.writers,), name="imports").start()


def _load(tensorboard: bool) -> None:
    # The code that needs a package imports it again, and reports why that fails.
    if tensorboard:
        with contextlib.suppress(Exception), deferred_imports(*_CLIENTS_OF_BUCKETS):
            importlib.import_module("tensorboardX")
    with contextlib.suppress(Exception):
        importlib.import_module("orbax.checkpoint")
