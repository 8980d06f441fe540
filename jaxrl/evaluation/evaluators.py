"""The evaluators of a configuration: of the environment it trains on and of one it never trains on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax

from envs import registry
from envs.vector import VectorEnv
from jaxrl.config import Config
from jaxrl.evaluation.evaluator import DeviceEvaluator, Evaluator
from jaxrl.evaluation.host_evaluator import HostEvaluator
from jaxrl.evaluation.result import Result, samples
from jaxrl.networks import Policy
from jaxrl.parallel.sharding import Topology
from jaxrl.rollout.episodes import Episodes
from jaxrl.types import PolicyState


def build(
    config: Config,
    name: str,
    policy: Policy,
    topology: Topology,
    given_up: Callable[[], bool] = lambda: False,
) -> Evaluator:
    """What plays episodes of the environment `name` with the wrappers of the configuration."""
    if registry.is_host(name):
        return HostEvaluator(policy, registry.make_host(name, config.env.wrappers), config, given_up)
    env = VectorEnv(registry.make(name, config.env.wrappers))
    return DeviceEvaluator(policy, env, topology, given_up=given_up)


class Evaluators:
    """What plays the environments of a configuration, by the prefix of their metrics."""

    def __init__(self, config: Config, evaluator_of: Callable[[str], Evaluator]) -> None:
        """`evaluator_of` makes what plays the environment of a name."""
        self._config = config
        names = {"eval/": config.env.name, "eval/unseen_": config.evaluate.unseen}
        self._evaluators = {prefix: evaluator_of(name) for prefix, name in names.items() if name}

    def __iter__(self) -> Iterator[Evaluator]:
        return iter(self._evaluators.values())

    @property
    def compiled(self) -> list[Any]:
        """What has been compiled so far."""
        return [program for each in self for program in each.compiled]

    def play(
        self,
        prefix: str,
        state: PolicyState,
        iteration: int,
        episodes: int | None = None,
        sample: bool | None = None,
    ) -> Episodes:
        """Plays episodes of one environment; what is not said here, the configuration says."""
        key = jax.random.fold_in(jax.random.key(self._config.seed), iteration)
        evaluate = self._config.evaluate
        sampled = evaluate.sample if sample is None else sample
        return self._evaluators[prefix].play(state, key, episodes or evaluate.episodes, sampled)

    def compile(self, state: PolicyState) -> list[Callable[[], None]]:
        """Jobs that compile ahead what a call takes, for threads; `state` may be abstract."""
        episodes, sample = self._config.evaluate.episodes, self._config.evaluate.sample
        return [functools.partial(each.compile, state, episodes, sample) for each in self]

    def __call__(self, state: PolicyState, iteration: int) -> tuple[Result, dict[str, float], dict[str, Any]]:
        """Plays episodes of all, as the configuration says.

        Returns:
          (result in the environment trained on, metrics, returns and lengths of the single episodes).
        """
        row: dict[str, float] = {}
        found: dict[str, Any] = {}
        played = {prefix: self.play(prefix, state, iteration) for prefix in self._evaluators}
        for prefix, episodes in played.items():
            result = Result.of(episodes)
            values = {"return": result.mean, "return_std": result.std, "length": result.mean_length}
            row |= {f"{prefix}{name}": value for name, value in values.items()}
            found |= {f"{prefix}{name}": values for name, values in samples(episodes).items()}
        return Result.of(played["eval/"]), row, found
