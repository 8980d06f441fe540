"""Gymnasium environments with goals, and what is said of these; for tests of hindsight on the host."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces


class Line(gymnasium.Env):
    """A place on a line of `size` steps; the goal is another one. By default 1 and the end there, else -1."""

    reached, missed, ends = 1.0, -1.0, True

    def __init__(self, size: int = 4):
        self.size = size
        place = spaces.Box(-size, size, (1,), np.float64)
        self.observation_space = spaces.Dict(
            {"observation": place, "achieved_goal": place, "desired_goal": place}
        )
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, 0.0
        self.goal = float(self.np_random.choice([-1, 1]) * self.np_random.integers(1, self.size + 1))
        return self._observe(), {}

    def step(self, action):
        self.time += 1
        self.place = float(np.clip(self.place + 2 * action - 1, -self.size, self.size))
        obs = self._observe()
        goals = obs["achieved_goal"], obs["desired_goal"]
        end = self.compute_terminated(*goals, {})
        return obs, self.compute_reward(*goals, {}), end, self.time >= 2 * self.size, {}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return self.reached if abs(achieved_goal - desired_goal)[0] < 0.5 else self.missed

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return bool(self.ends and abs(achieved_goal - desired_goal)[0] < 0.5)

    def _observe(self):
        place = np.array([self.place])
        return {"observation": place, "achieved_goal": place, "desired_goal": np.array([self.goal])}


class EndlessLine(Line):
    """0 at the goal, else -1, and episodes go on, as those of Gymnasium-Robotics."""

    reached, missed, ends = 0.0, -1.0, False


class SilentLine(Line):
    """Without methods that could be asked about other goals."""

    def step(self, action):
        self.time += 1
        self.place = float(np.clip(self.place + 2 * action - 1, -self.size, self.size))
        met = self.place == self.goal
        return self._observe(), 1.0 if met else -1.0, met, self.time >= 2 * self.size, {}

    compute_reward = compute_terminated = property()  # no attribute
