"""An environment whose resets take options: what it was asked for shows in what it reports."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Asked(gymnasium.Env[np.ndarray, Any]):
    """Episodes of three steps; `gain` scales the reward and `level` says whether one succeeds."""

    metadata: ClassVar[dict[str, Any]] = {
        "reports": {"gain": "last", "level": "last", "success": "last"},
        "tasks": {"gain": (0, 10), "level": (0, 5)},
    }
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        asked = options or {}
        self.gain, self.level, self.left = asked.get("gain", 1.0), asked.get("level", 5), 3
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        said = {"gain": self.gain, "level": self.level, "success": float(self.level % 2 == 0)}
        return self._observation(), float(self.gain), self.left == 0, False, said

    def _observation(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


class Deaf(Asked):
    """One whose resets take none."""

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:  # type: ignore[override]
        return super().reset(seed=seed)
