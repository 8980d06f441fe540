"""Checkpoints of the whole training state: written by Orbax, proved by digests of our own; local or gs://."""

from jaxrl.checkpoint.background_save import SaveError
from jaxrl.checkpoint.checkpointer import Checkpointer
from jaxrl.checkpoint.folder import CheckpointError, CorruptCheckpoint

__all__ = ["CheckpointError", "Checkpointer", "CorruptCheckpoint", "SaveError"]
