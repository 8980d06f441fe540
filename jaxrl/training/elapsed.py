"""The share of a budget in seconds that schedules follow."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxrl.config import Config
from jaxrl.parallel.sharding import Topology
from jaxrl.types import LearnerState


def with_elapsed(config: Config, topology: Topology, learner: LearnerState, seconds: float) -> LearnerState:
    """Returns `learner` as it is after so many seconds of training.

    Args:
      config: the resolved configuration.
      topology: the devices that hold the state.
      learner: before an iteration.
      seconds: of training over all processes of the run, as `stop.seconds` counts them.
    """
    budget = config.stop.seconds
    if not config.follows_clock or budget is None:
        return learner
    share = topology.replicate(np.float32(min(seconds / budget, 1.0)))
    return dataclasses.replace(learner, elapsed=share)
