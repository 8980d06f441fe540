"""The evaluator of an environment, on devices or on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxrl.algorithms import Agent
from jaxrl.config import Config
from jaxrl.envs import registry
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.vector_mixture import vector_env
from jaxrl.evaluation.evaluator import DeviceEvaluator, Evaluator
from jaxrl.evaluation.host_evaluator import HostEvaluator
from jaxrl.experience.statistics import NO_REPORTS, EpisodeReports
from jaxrl.parallel.sharding import Topology


@dataclass(frozen=True)
class EvaluationTask:
    """An environment to play, and the values to record of it.

    Attributes:
      env, wrappers: as in a configuration.
      reports: what to record of each episode beside its return and length.
    """

    env: str
    wrappers: tuple[str, ...] = ()
    reports: EpisodeReports = NO_REPORTS

    @classmethod
    def of(cls, config: Config, spec: EnvSpec) -> EvaluationTask:
        """The environment of a configuration, of which `spec` is the spec."""
        return cls(config.env.name, config.env.wrappers, EpisodeReports.of(spec, config.env.success))


def build(
    config: Config,
    task: EvaluationTask,
    agent: Agent,
    topology: Topology,
    given_up: Callable[[], bool] = lambda: False,
) -> Evaluator:
    """Builds the evaluator of a task; `config` says how environments on the host are started."""
    if registry.is_host(task.env):
        factory = registry.make_host(task.env, task.wrappers)
        return HostEvaluator(agent, factory, config, task.reports, given_up)
    env = vector_env(registry.make(task.env, task.wrappers))
    return DeviceEvaluator(agent, env, topology, task.reports, given_up)
