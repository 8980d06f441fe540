"""`reward_scale` and `reward_clip`: other rewards to learn from. Episodes are reported as before."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl.envs.base import JaxEnv
from jaxrl.envs.wrappers.wrapper import RewardWrapper, check_number


class RewardScale(RewardWrapper):
    """Multiplies rewards by `factor`."""

    def __init__(self, env: JaxEnv, factor: float):
        super().__init__(env)
        self._factor = np.float32(check_number("wrapper reward_scale: factor", factor))

    def change(self, reward: Any) -> Any:
        return reward * self._factor


class RewardClip(RewardWrapper):
    """Clips rewards to `[low, high]`."""

    def __init__(self, env: JaxEnv, low: float = -1.0, high: float = 1.0):
        super().__init__(env)
        self._low = np.float32(check_number("wrapper reward_clip: low", low))
        self._high = np.float32(check_number("wrapper reward_clip: high", high))
        if low >= high:
            raise ValueError(f"wrapper reward_clip: low (={low!r}) must be below high (={high!r})")

    def change(self, reward: Any) -> Any:
        return reward.clip(self._low, self._high)
