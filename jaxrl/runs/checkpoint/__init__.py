"""Checkpoints of the whole training state: written by Orbax, verified by digests; local or gs://."""

from jaxrl.runs.checkpoint.background_save import SaveError
from jaxrl.runs.checkpoint.checkpointer import Checkpointer
from jaxrl.runs.checkpoint.folder import CheckpointError, CorruptCheckpoint

__all__ = ["CheckpointError", "Checkpointer", "CorruptCheckpoint", "SaveError"]
