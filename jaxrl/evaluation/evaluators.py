"""The evaluator of an environment, on devices or on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxrl import algorithms
from jaxrl.algorithms import Agent
from jaxrl.config import Config
from jaxrl.config.sections import EnvConfig
from jaxrl.envs import registry
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.graphs import have_equal_graphs
from jaxrl.envs.vector_mixture import BatchedEnv, vector_env
from jaxrl.evaluation.evaluator import DeviceEvaluator, Evaluator
from jaxrl.evaluation.host_evaluator import HostEvaluator
from jaxrl.experience.statistics import NO_REPORTS, EpisodeReports
from jaxrl.parallel.sharding import Topology


@dataclass(frozen=True)
class EvaluationTask:
    """An environment to play, and the values to record of it.

    Attributes:
      env, wrappers: as in a configuration.
      reports: the values to record of each episode beside its return and length.
    """

    env: str
    wrappers: tuple[str, ...] = ()
    reports: EpisodeReports = NO_REPORTS

    @classmethod
    def of(cls, env: EnvConfig, spec: EnvSpec) -> EvaluationTask:
        """The environment of a configuration; `spec` is its spec."""
        return cls(env.name, env.wrappers, EpisodeReports.of(spec, env.success))

    def environment(self) -> BatchedEnv:
        """The environment, which is JAX code, for as many rows as it is called with."""
        return vector_env(registry.make(self.env, self.wrappers))


def build(
    config: Config,
    task: EvaluationTask,
    agent: Agent,
    topology: Topology,
    given_up: Callable[[], bool] = lambda: False,
) -> Evaluator:
    """Builds the evaluator of a task; `config` sets how host environments are started."""
    if registry.is_host(task.env):
        factory = registry.make_host(task.env, task.wrappers)
        return HostEvaluator(agent, factory, config, task.reports, given_up)
    env = task.environment()
    return DeviceEvaluator(agent_of(config, agent, env.spec), env, topology, task.reports, given_up)


def agent_of(config: Config, agent: Agent, spec: EnvSpec) -> Agent:
    """The agent that plays an environment with the parameters of `agent`, which was built for another one.

    It is another agent if the spaces hold other graphs: parameters do not depend on these, networks do.
    """
    same = have_equal_graphs(spec.observation_space, agent.spec.observation_space)
    return agent if same else algorithms.build_agent(config, spec)
