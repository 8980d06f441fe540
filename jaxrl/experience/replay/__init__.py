"""Replay memories: a ring of rows, uniform or prioritised sampling, n-step windows, hindsight."""

from jaxrl.experience.replay.hindsight_buffer import HindsightBufferState, HindsightReplayBuffer
from jaxrl.experience.replay.prioritized_buffer import PrioritizedBufferState, PrioritizedReplayBuffer
from jaxrl.experience.replay.replay import Replay, SequenceReplay
from jaxrl.experience.replay.ring import Ring

__all__ = [
    "HindsightBufferState",
    "HindsightReplayBuffer",
    "PrioritizedBufferState",
    "PrioritizedReplayBuffer",
    "Replay",
    "Ring",
    "SequenceReplay",
]
