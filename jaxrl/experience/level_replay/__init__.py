"""Levels by what can be learnt from them: prioritised level replay and its relatives (docs/levels.md)."""

from __future__ import annotations

from jaxrl.config import Config
from jaxrl.config.curriculum import LEARNABILITY
from jaxrl.envs.base import JaxEnv
from jaxrl.experience.level_replay.learnability import LearnabilitySampler
from jaxrl.experience.level_replay.replay_sampler import LevelReplaySampler
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.experience.tasks import TaskSampler


def build(config: Config, env: JaxEnv, told: EpisodeReports) -> TaskSampler:
    """The task sampler that `curriculum.name` names.

    Args:
      config: the resolved configuration.
      env: whose levels are chosen.
      told: the values reported of episodes.

    Raises:
      ConfigError: the environment, or what is known of its episodes, does not suit the method.
    """
    if config.curriculum.name == LEARNABILITY:
        return LearnabilitySampler.of(config, env, told)
    return LevelReplaySampler.of(config, env, told)
