"""A curriculum by stages in plain Python, episode by episode, and environments that are only dice."""

from __future__ import annotations

import dataclasses
from collections import deque

import numpy as np

from jaxrl.config.stages import Stage


class PlainCurriculum:
    """The decisions of `StageSampler`; environments are told apart by their index."""

    def __init__(self, stages: tuple[Stage, ...], num_envs: int, start: int = 0) -> None:
        self.stages, self.num_envs, self.stage, self.visit = stages, num_envs, start, 0
        size = max(stage.window for stage in stages)
        self.watched = sorted({i * num_envs // min(size, num_envs) for i in range(min(size, num_envs))})
        self.forget()

    def forget(self) -> None:
        self.steps = self.episodes = 0
        self.latest = {env: deque[tuple[float, float, float]](maxlen=10_000) for env in self.watched}

    def end_episode(self, env: int, stage: int, visit: int, numbers: tuple[float, float, float]) -> None:
        if (stage, visit) == (self.stage, self.visit):
            self.episodes += 1
            if env in self.latest:
                self.latest[env].appendleft(numbers)

    def window(self) -> list[tuple[float, float, float]]:
        """The latest of each, then the second latest of each, up to the size of the window."""
        size, found = self.stages[self.stage].window, []
        slots = [(k, env) for k in range(size) for env in self.watched][:size]
        for k, env in slots:
            if k < len(self.latest[env]):
                found.append(self.latest[env][k])
        return found

    def end_rollout(self, steps: int) -> None:
        self.steps += steps
        stage, window = self.stages[self.stage], self.window()
        is_full = len(window) == stage.window
        success, returns, cost = np.mean(np.array(window or [(0, 0, 0)], np.float64), axis=0)
        reaches = stage.has_threshold and all(
            (
                stage.success is None or success >= stage.success - 1e-9,
                stage.returns is None or returns >= stage.returns - 1e-9,
                stage.collisions is None or cost <= stage.collisions + 1e-9,
            )
        )
        may_end = is_full and self.steps >= stage.least_steps
        must_end = stage.most_steps is not None and self.steps >= stage.most_steps
        if self.stage + 1 < len(self.stages) and ((may_end and reaches) or must_end):
            self.move(1)
        elif may_end and self.stage > 0 and stage.back is not None and success < stage.back - 1e-9:
            self.move(-1)

    def move(self, by: int) -> None:
        self.stage, self.visit = self.stage + by, self.visit + 1
        self.forget()


@dataclasses.dataclass
class Dice:
    """Environments whose episodes end at random, with the label of the task that they began with."""

    rng: np.random.Generator
    num_envs: int

    def __post_init__(self) -> None:
        self.label = np.zeros((self.num_envs, 2), np.int32)

    def rollout(self, length: int, stage: int, visit: int, success: float) -> dict[str, np.ndarray]:
        """[T, B] of one rollout; a fifth of the episodes belong to an earlier stage."""
        shape = (length, self.num_envs)
        found = {
            "ended": self.rng.random(shape) < 0.3,
            "success": (self.rng.random(shape) < success).astype(np.float32),
            "return": self.rng.integers(0, 4, shape).astype(np.float32),
            "cost": self.rng.integers(0, 2, shape).astype(np.float32),
            "label": np.zeros((*shape, 2), np.int32),
        }
        for t in range(length):
            found["label"][t] = self.label
            for env in np.flatnonzero(found["ended"][t]):
                is_earlier = stage > 0 and self.rng.random() < 0.2
                self.label[env] = self.rng.integers(0, stage) if is_earlier else stage, visit
        return found
