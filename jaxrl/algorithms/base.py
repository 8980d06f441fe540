"""The algorithm: an agent that acts, and pure functions from a state and experience to the next state.

A new algorithm is a section of the configuration (`jaxrl/config/`), a module or package beside `a2c.py` with
a class that implements `Algorithm`, and its line in the registry; or a module of a user with both
(docs/tutorials/algorithm.md). Collectors, the trainer, checkpoints, evaluation and writers know nothing else
of it. Algorithms that learn by epochs of minibatches derive from
`jaxrl.algorithms.minibatch_algorithm.MinibatchAlgorithm`, which leaves them little to say.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.agent import Agent
from jaxrl.algorithms.optimizer import OptimizerShards, layer_norms, planned_updates
from jaxrl.config import AlgorithmConfig, Config, ConfigError
from jaxrl.config.network import NetworkConfig
from jaxrl.config.sections import SAMPLED
from jaxrl.config.stages import parse
from jaxrl.envs.base import EnvSpec
from jaxrl.metrics.reduction import Last, Mean, Metric, Metrics
from jaxrl.types import Acting, Array, LearnerState, PyTree

_T = TypeVar("_T")

# Options that every configuration has, and which an algorithm honours or refuses by name: who asks for them.
OPTIONS: Mapping[str, Callable[[Config], bool]] = {
    "normalize.observations": lambda c: c.normalize.observations,
    "normalize.rewards": lambda c: c.normalize.rewards,
    "normalize.clip_rewards": lambda c: c.normalize.clip_rewards > 0,
    "nonfinite": lambda c: c.nonfinite == "skip",
    "network.separate_value": lambda c: c.network.separate_value,
    "network.central_value": lambda c: c.network.central_value,
    "network.frozen": lambda c: bool(c.network.frozen),
    "network.head": lambda c: c.network.head != "auto",
    "network.policy_gain": lambda c: c.network.policy_gain != NetworkConfig.policy_gain,
    "network.policy_std": lambda c: c.network.policy_std != NetworkConfig.policy_std,
    "host.overlap": lambda c: c.host.overlap is True,
    "evaluate.modes": lambda c: c.evaluate.modes == (SAMPLED,),
    "selfplay.enabled": lambda c: c.selfplay.enabled,
    "env.num_agents": lambda c: c.env.num_agents > 0,
    "curriculum.weights": lambda c: any(stage.weights for stage in parse(c.curriculum.stages)),
}
# The options that learning by epochs of minibatches honours, whatever the loss.
OF_MINIBATCHES = frozenset(
    "normalize.observations normalize.rewards normalize.clip_rewards nonfinite network.frozen "
    "selfplay.enabled env.num_agents curriculum.weights".split()
)
# The options of an agent that samples from a distribution and has a value function.
OF_ACTOR_CRITICS = frozenset(
    "network.separate_value network.head network.policy_gain network.policy_std evaluate.modes".split()
)


@flax.struct.dataclass
class Learned:
    """The result of `Algorithm.learn`.

    Attributes:
      feedback: for the memory that the experience was sampled from, such as new priorities; None: nothing.
      metrics: equal on all devices.
      signals: float32[T, B] by the names in `Algorithm.signals`, of the rollout just collected.
    """

    learner: Any
    feedback: PyTree
    metrics: Metrics
    signals: dict[str, Array] = flax.struct.field(default_factory=dict)


class Algorithm(abc.ABC):
    """One device's share of learning. Every method is pure: jit, shard_map and vmap (over members) apply.

    Attributes:
      agent: acts, and is trained.
      name: of its section in the configuration, and the beginning of the names of its metrics.
      config_section: the class of that section.
      hyperparams_type: the `flax.struct` dataclass of its numeric hyperparameters, fields of that section.
      state_type: the class of its learner state, whose fields say how they are laid out on devices.
      highlights: (metric, label) of metrics worth showing on the display of a run.
      offers: the options of every configuration that it honours, in `OPTIONS`; a configuration with other
        options is refused.
      signals: the names of numbers of each step, such as its advantage, that it offers to task samplers.
      memory: the store between collecting and learning: the name of one of `jaxrl.experience.memory`, a plan,
        or a custom memory.
      draws_per_iteration: how often an iteration samples the memory and learns.
      keeps_learner: True if `learn` itself returns the learner as it was whenever `is_finite`, which looks at
        metrics alone then, says False.
    """

    config: Config
    agent: Agent
    name: ClassVar[str]
    config_section: ClassVar[type[AlgorithmConfig]]
    hyperparams_type: ClassVar[type]
    state_type: ClassVar[type[LearnerState]]
    highlights: ClassVar[tuple[tuple[str, str], ...]] = ()
    offers: ClassVar[frozenset[str]] = frozenset()
    signals: ClassVar[tuple[str, ...]] = ()
    memory: Any = "latest"
    draws_per_iteration: int = 1
    keeps_learner: ClassVar[bool] = False

    @classmethod
    @abc.abstractmethod
    def build_agent(cls, config: Config, spec: EnvSpec) -> Agent:
        """The agent of a configuration, for an environment; ConfigError if no network serves its spaces."""

    @property
    @abc.abstractmethod
    def metrics(self) -> Mapping[str, type[Metric]]:
        """The metrics of `learn` by name, each with its reduction; `updates_metric` among them."""

    @property
    @abc.abstractmethod
    def passes_per_step(self) -> float:
        """The passes of `learn` over each environment step: a forward and a backward pass each.

        If nothing is collected, the samples of one update.
        """

    @classmethod
    def hyperparameters(cls, config: Config) -> PyTree:
        """The numeric hyperparameters of a configuration, float32 scalars, for `init`. May be overridden."""
        return read_hyperparams(cls.hyperparams_type, config.learner)

    @abc.abstractmethod
    def init(self, key: Array, hyperparams: PyTree) -> LearnerState:
        """The state before the first update: parameters, optimiser, statistics, counters."""

    def exploration(self, learner: Any) -> PyTree:
        """The exploration while experience is collected, such as an epsilon; None, as of agents that sample.

        May be overridden.
        """
        return None

    @abc.abstractmethod
    def learn(self, learner: Any, experience: Any, key: Array) -> Learned:
        """Learns from one sample of the memory.

        Args:
          learner: from `init` or `learn`; replicated, except for fields marked `Sharded`.
          experience: of this device; the trajectory just collected, if the memory is the latest one.
          key: the same on all devices.
        """

    @abc.abstractmethod
    def is_finite(self, learner: Any, metrics: Metrics) -> Array:
        """bool[], equal on all devices: no NaN, no infinity came up in the `learn` that returned these."""

    @abc.abstractmethod
    def inspect(self, learner: Any, experience: Any, key: Array) -> dict[str, Array]:
        """`learn` again, with every quantity watched, to find where a NaN or an infinity came up first.

        Returns:
          Arrays of the updates in their order, [epochs, minibatches]: `loss/NAME` and `grad/norm`, float32;
          `output/NNN/LAYER` and `gradient/PARAMETER`, bool, True if something in it is not finite.
        """

    @property
    def updates_metric(self) -> str:
        """The name of the metric that counts gradient steps since the start of the run."""
        return f"{self.name}/updates"

    @property
    def collecting_agent(self) -> Agent:
        """The agent of rollouts, for `acting` with exploration. May be overridden, by a mixture of policies.

        Its carry and exploration may differ from `agent`'s, its actions and observations may not.
        """
        return self.agent

    def optimizer_shards(self) -> OptimizerShards | None:
        """The layout of `opt_state` if it is divided among the devices; None: each has all of it.

        May be overridden.
        """
        return None

    @property
    def teacher(self) -> tuple[str, str]:
        """(the field that names it, the folder of a run whose policy a fresh state gets as its teacher).

        The folder is "" without one. May be overridden, together with `with_teacher`.
        """
        return "", ""

    def with_teacher(self, learner: Any, acting: Acting) -> Any:
        """A fresh state with the policy of `teacher`. May be overridden."""
        raise NotImplementedError(f"{self.name} has no teacher")

    def scheduled_values(self, learner: LearnerState) -> dict[str, float]:
        """The values that follow the planned length of the run, as they are at the next update, by name."""
        exploration = self.exploration(learner)
        return {} if exploration is None else {"exploration": float(exploration)}

    def acting(self, learner: LearnerState, explore: bool = True) -> Acting:
        """The part that acts: it explores to collect experience, but not in evaluations and exports."""
        exploration = self.exploration(learner) if explore else None
        return dataclasses.replace(learner.policy, exploration=exploration)

    def declared(self, names: Iterable[str], **others: type[Metric]) -> dict[str, type[Metric]]:
        """`metrics`: means of these names, the others, the updates and, if configured, norms by layer."""
        found: dict[str, type[Metric]] = dict.fromkeys(names, Mean)
        found |= {**others, self.updates_metric: Last}
        if self.config.log.layers:
            params = jax.eval_shape(self.agent.init_params, jax.random.key(0))
            found |= dict.fromkeys(jax.eval_shape(layer_norms, params), Mean)
        return found

    def with_config(self, config: Config) -> Self:
        """The same algorithm for a run with another seed and other numeric hyperparameters."""
        return dataclasses.replace(self, config=config)  # type: ignore[type-var]


def read_hyperparams(kind: type[_T], section: AlgorithmConfig) -> _T:
    """The fields of a section that a `flax.struct` dataclass has too; None (no limit) becomes infinity."""

    def scalar(value: Any) -> Any:
        return jnp.float32(jnp.inf if value is None else value)

    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    return kind(**{field.name: scalar(getattr(section, field.name)) for field in fields})


def run_progress(config: Config, learner: LearnerState, fraction: Array) -> Array:
    """float32[]: 0 at the start of the run, 1 after a fraction of its planned updates, or of its seconds."""
    if learner.elapsed is not None:
        # A fraction of 0 is over at once.
        return jnp.minimum(learner.elapsed / jnp.maximum(fraction, 1e-9), 1.0)
    planned = jnp.maximum(fraction * planned_updates(config, learner), 1.0)
    return jnp.minimum(learner.updates.astype(jnp.float32) / planned, 1.0)


def require_offered(config: Config, offers: frozenset[str]) -> None:
    """Raises ConfigError if a configuration asks for an option that its algorithm does not offer."""
    unknown = offers - OPTIONS.keys()
    assert not unknown, f"no such options: {', '.join(sorted(unknown))}"
    for name, is_asked in OPTIONS.items():
        if name not in offers and is_asked(config):
            raise ConfigError(f"`{name}` is not offered by `algorithm` (={config.algorithm!r})")
