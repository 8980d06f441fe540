"""Learning from trajectories: what algorithms share, and a package for each."""

from jaxrl.algorithms.base import Algorithm
from jaxrl.algorithms.registry import build, hyperparameters

__all__ = ["Algorithm", "build", "hyperparameters"]
