"""A curriculum by stages for a custom loop, in plain Python."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from jaxrl.config import ConfigError
from jaxrl.config.stages import Stage, TaskValue, parse, read_file

# By stage; the last holds for all that follow.
_EPSILONS = (0.5, 0.3, 0.2, 0.1)


class StageCurriculum:
    """Stages for a custom loop; the trainer has its own on the device, `curriculum.file`.

        curriculum = jaxrl.StageCurriculum.read("navigation")
        for episode in range(10_000):
            parameters = curriculum.current_parameters()
            ...
            curriculum.update(episode, total_reward, reached_goal, collisions)

    The window of the latest episodes alone decides: steps are not counted, so `least_steps` and `most_steps`
    have no effect, and the loop chooses which episodes are of earlier stages.

    Attributes:
      stage: the present one, from 1 on.
    """

    def __init__(self, stages: Sequence[Stage] | None = None, start_stage: int = 1) -> None:
        """Begins with a stage, by default of the shipped ones of Navigation.

        Raises:
          ConfigError: there is none of that number.
        """
        if stages is None:
            stages = parse(read_file("navigation", "name"))
        if not 1 <= start_stage <= len(stages):
            raise ConfigError(f"`start_stage` (={start_stage}) must lie between 1 and {len(stages)}")
        self.stages = tuple(stages)
        self.stage = start_stage
        self._begin()
        self._told = 0

    @classmethod
    def read(cls, name: str | os.PathLike[str], start_stage: int = 1) -> Self:
        """The curriculum of a file of stages, or a shipped one by its name.

        Raises:
          ConfigError: there is no such file, or something in it is wrong.
        """
        return cls(parse(read_file(os.fspath(name), "name")), start_stage)

    @property
    def present(self) -> Stage:
        """The present stage."""
        return self.stages[self.stage - 1]

    def current_parameters(self) -> dict[str, TaskValue]:
        """The stage's task: by field of the environment's tasks a number, a range (low, high), or names."""
        return dict(self.present.task)

    def get_current_env_config(self) -> dict[str, TaskValue]:
        """`current_parameters`, as other trainers call it."""
        return self.current_parameters()

    def current_epsilon(self) -> float:
        """The stage's exploration rate; 0.5, 0.3, 0.2, and then 0.1, if it gives none."""
        own = self.present.epsilon
        return _EPSILONS[min(self.stage, len(_EPSILONS)) - 1] if own is None else own

    def get_current_epsilon(self) -> float:
        """`current_epsilon`, as other trainers call it."""
        return self.current_epsilon()

    def current_weights(self) -> dict[str, float]:
        """The stage's weights of the losses of several tasks; a task that it leaves out has 1."""
        return dict(self.present.weights)

    def update(self, episode: int, reward: float, success: bool, collisions: float = 0.0) -> bool:
        """Takes an episode of the present stage that has ended; returns whether the stage changed.

        Args:
          episode: its number, which only `progress` shows.
          reward: its return.
        """
        self._told = episode
        self._episodes += 1
        self._window.append((float(success), float(reward), float(collisions)))
        by = self._change()
        if by:
            self.stage += by
            self._begin()
        return by != 0

    def progress(self) -> dict[str, Any]:
        """Its progress: `stage`, `num_stages`, `name`, `episode`, `episodes` of the stage, and the means over
        its window so far: `success_rate`, `return`, `collisions`, None without any episode.
        """
        means: Sequence[float | None] = self._means() if self._window else (None, None, None)
        return {
            "stage": self.stage,
            "num_stages": len(self.stages),
            "name": self.present.name,
            "episode": self._told,
            "episodes": self._episodes,
            "success_rate": means[0],
            "return": means[1],
            "collisions": means[2],
        }

    def _begin(self) -> None:
        self._episodes = 0
        self._window: deque[tuple[float, float, float]] = deque(maxlen=self.present.window)

    def _means(self) -> Sequence[float]:
        """Success, return and collisions."""
        means: list[float] = np.mean(np.array(self._window), axis=0).tolist()
        return means

    def _change(self) -> int:
        """1 to continue, -1 to go back, 0 to stay."""
        stage = self.present
        if len(self._window) < stage.window:
            return 0
        success, returns, collisions = self._means()
        reaches = stage.has_threshold and (
            (stage.success is None or success >= stage.success)
            and (stage.returns is None or returns >= stage.returns)
            and (stage.collisions is None or collisions <= stage.collisions)
        )
        if reaches and self.stage < len(self.stages):
            return 1
        return -1 if stage.back is not None and success < stage.back and self.stage > 1 else 0
