"""Curricula: the tasks of environments in the course of training."""

from __future__ import annotations

from jaxrl.config import Config, ConfigError
from jaxrl.config.curriculum import LEARNABILITY, LEVEL_METHODS, STAGES
from jaxrl.config.errors import errors_as
from jaxrl.envs import modules
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.host_env import HostFactory
from jaxrl.experience.curriculum.stage_sampler import StageSampler
from jaxrl.experience.level_replay.learnability import LearnabilitySampler
from jaxrl.experience.level_replay.replay_sampler import LevelReplaySampler
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.experience.tasks import TaskSampler


def build(config: Config, env: JaxEnv | HostFactory, reports: EpisodeReports) -> TaskSampler | None:
    """The task sampler of a configuration; None if each episode has the default task.

    Raises:
      ConfigError: one does not fit the environment or its reports of episodes, or is no task sampler.
    """
    name = config.curriculum.name
    if not config.curriculum.is_used:
        return None
    if name == STAGES:
        return StageSampler.of(config, env, reports)
    assert isinstance(env, JaxEnv), "on the host only stages choose tasks"
    if name == LEARNABILITY:
        return LearnabilitySampler.of(config, env, reports)
    if name in LEVEL_METHODS:
        return LevelReplaySampler.of(config, env, reports)
    with errors_as(ConfigError, "", ValueError):
        found = modules.load_attribute("`curriculum.name`", name)
    if not isinstance(found, type) or not issubclass(found, TaskSampler):
        raise ConfigError(
            f"`curriculum.name` (={name!r}) must be a class that derives from "
            "jaxrl.experience.tasks.TaskSampler"
        )
    try:
        sampler: TaskSampler = found(config, env)  # type: ignore[call-arg]
    except TypeError as error:
        raise ConfigError(f"`curriculum.name` (={name!r}): {modules.one_line(error)}") from error
    return sampler
