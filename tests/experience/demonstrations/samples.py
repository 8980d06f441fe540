"""Small episodes by hand, and environments to record."""

from __future__ import annotations

import numpy as np

from jaxrl.envs.base import Box, Discrete, EnvSpec
from jaxrl.experience.demonstrations import Episode

SPEC = EnvSpec("test:Line", Box.of(-1.0, 1.0, (2,)), Discrete(3))


def episode(length: int, seed: int = 0, terminated: bool = True) -> Episode:
    """Observations count up from `seed`, so that each row of a data set can be told from the others."""
    steps = np.arange(length + 1, dtype=np.float32)
    flags = np.zeros((2, length), bool)
    flags[0 if terminated else 1, -1] = True
    return Episode(
        observations=np.stack([steps / 1000, np.full_like(steps, seed / 1000)], axis=1),
        actions=(np.arange(length) % 3).astype(np.int32),
        rewards=np.ones(length, np.float32),
        terminations=flags[0],
        truncations=flags[1],
        infos={"odd": np.where(steps[:-1] % 2 == 1, steps[:-1], np.nan).astype(np.float32)},
        seed=seed,
        success=terminated,
        player="by hand",
    )
