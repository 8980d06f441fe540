"""Demonstrations: episodes in files, how they are recorded, and the memory that deals them out."""

from jaxrl.experience.demonstrations.dataset import Dataset, DatasetFault, read_dataset, write_dataset
from jaxrl.experience.demonstrations.demonstrations import Aggregate, Demonstrations
from jaxrl.experience.demonstrations.episode import Episode
from jaxrl.experience.demonstrations.recording import record_episodes

__all__ = [
    "Aggregate",
    "Dataset",
    "DatasetFault",
    "Demonstrations",
    "Episode",
    "read_dataset",
    "record_episodes",
    "write_dataset",
]
