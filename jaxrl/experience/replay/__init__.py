"""Replay memories: a ring of rows, uniform or prioritised draws, n-step windows."""

from jaxrl.experience.replay.prioritized_buffer import PrioritizedBufferState, PrioritizedReplayBuffer
from jaxrl.experience.replay.replay import Replay
from jaxrl.experience.replay.ring import Ring

__all__ = ["PrioritizedBufferState", "PrioritizedReplayBuffer", "Replay", "Ring"]
