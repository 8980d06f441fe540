"""Checkpoints of the whole training state: written by Orbax, verified by digests; local or gs://."""

from jaxrl.runs.checkpoint.background_save import SaveError
from jaxrl.runs.checkpoint.checkpoint_folder import CheckpointError, CorruptCheckpoint
from jaxrl.runs.checkpoint.checkpointer import Checkpointer

__all__ = ["CheckpointError", "Checkpointer", "CorruptCheckpoint", "SaveError"]
