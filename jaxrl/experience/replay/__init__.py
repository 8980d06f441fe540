"""Replay memories: a ring of rows, uniform or prioritised sampling, n-step windows, hindsight."""

from jaxrl.experience.replay.hindsight_buffer import HindsightBufferState, HindsightReplayBuffer
from jaxrl.experience.replay.prioritized_buffer import PrioritizedBufferState, PrioritizedReplayBuffer
from jaxrl.experience.replay.replay import Replay
from jaxrl.experience.replay.ring import Ring
from jaxrl.experience.replay.sequence_replay import SequenceReplay

__all__ = [
    "HindsightBufferState",
    "HindsightReplayBuffer",
    "PrioritizedBufferState",
    "PrioritizedReplayBuffer",
    "Replay",
    "Ring",
    "SequenceReplay",
]
