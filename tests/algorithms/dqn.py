"""A DQN as an algorithm from outside: replay, final observations, target network, feedback."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import flax.struct
import jax
import jax.numpy as jnp
import optax

from jaxrl.algorithms import Algorithm, Learned, QAgent
from jaxrl.algorithms.optimizer import optimizer
from jaxrl.algorithms.q_values import value_of
from jaxrl.config import AlgorithmConfig, Config, field
from jaxrl.config.fields import above, at_least, between, require_divides
from jaxrl.envs.base import EnvSpec
from jaxrl.metrics.reduction import Last, Mean, Metric, Metrics
from jaxrl.networks import check_platform
from jaxrl.types import Array, Axis, LearnerState, PyTree
from tests.algorithms.replay import Sample, UniformReplay


@dataclasses.dataclass(frozen=True)
class DQNConfig(AlgorithmConfig):
    """Deep Q-learning from a uniform replay memory (Mnih et al. 2015)."""

    rollout_length: int = field(16, at_least(1), help="time steps of one rollout", fixed=True)
    sequence_length: int = field(4, at_least(1), help="time steps of a replayed sequence", fixed=True)
    capacity: int = field(64, at_least(1), help="rows kept of each environment", fixed=True)
    drawn: int = field(2, at_least(1), help="sequences of each environment in a draw")
    draws: int = field(2, at_least(1), help="draws in an iteration")
    learning_rate: float = field(1e-2, at_least(0), help="learning rate of Adam")
    gamma: float = field(0.99, between(0, 1), help="discount factor")
    epsilon: float = field(0.25, between(0, 1), help="share of random actions")
    target_rate: float = field(0.05, between(0, 1), help="how far the target network goes in an update")
    max_grad_norm: float = field(10.0, above(0), help="the gradient is scaled down to this norm")

    def carry_interval(self, num_envs: int) -> int:
        return self.sequence_length

    @property
    def updates_per_iteration(self) -> int:
        return self.draws

    def check_counts(self, name: str, num_envs: int, device_count: int) -> None:
        length = self.rollout_length
        described = f"`{name}.rollout_length` (={length})"
        require_divides(f"{name}.sequence_length", self.sequence_length, length, described)
        described = f"`{name}.capacity` (={self.capacity})"
        require_divides(f"{name}.rollout_length", length, self.capacity, described)


@flax.struct.dataclass
class DQNHyperparams:
    learning_rate: Array
    gamma: Array
    epsilon: Array
    target_rate: Array
    max_grad_norm: Array


@flax.struct.dataclass
class DQNState(LearnerState):
    """With the optimiser's state and the parameters of the target network."""

    opt_state: PyTree
    target: PyTree


@dataclass(frozen=True)
class UniformDQN(Algorithm):
    config: Config
    agent: QAgent
    axis: Axis

    name: ClassVar = "uniform_dqn"
    config_section: ClassVar = DQNConfig
    state_type: ClassVar = DQNState
    highlights: ClassVar = (("loss/value", "value loss"), ("uniform_dqn/q", "Q-value"))

    def __post_init__(self) -> None:
        check_platform(self.config.network, self.axis)

    @classmethod
    def build_agent(cls, config: Config, spec: EnvSpec) -> QAgent:
        return QAgent.build(config.network, spec, config.normalize, needs_final_observations=True)

    @classmethod
    def hyperparameters(cls, config: Config) -> DQNHyperparams:
        names = [each.name for each in dataclasses.fields(DQNHyperparams)]
        return DQNHyperparams(**{name: jnp.float32(getattr(config.learner, name)) for name in names})

    @property
    def section(self) -> DQNConfig:
        assert isinstance(self.config.learner, DQNConfig)
        return self.config.learner

    @property
    def memory(self) -> UniformReplay:  # type: ignore[override]
        section = self.section
        return UniformReplay(section.capacity, section.sequence_length, section.drawn, self.axis)

    @property
    def draws_per_iteration(self) -> int:  # type: ignore[override]
        return self.section.draws

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        means = ("loss/value", "grad/norm", "uniform_dqn/q", "uniform_dqn/reward", "uniform_dqn/value")
        return {**dict.fromkeys(means, Mean), self.updates_metric: Last}

    @property
    def passes_per_step(self) -> float:
        section = self.section
        return section.draws * section.drawn * section.sequence_length / section.rollout_length

    def init(self, key: Array, hyperparams: DQNHyperparams) -> DQNState:
        policy = self.agent.init(key)
        return DQNState(
            policy=policy,
            hyperparams=hyperparams,
            updates=jnp.zeros((), jnp.int32),
            opt_state=optimizer(hyperparams.max_grad_norm, 0.0).init(policy.params),
            # Not the same arrays: all of the state is donated.
            target=jax.tree.map(jnp.copy, policy.params),
        )

    def exploration(self, learner: DQNState) -> Array:
        return learner.hyperparams.epsilon

    def learn(self, learner: DQNState, experience: Sample, key: Array) -> Learned:
        gradient, sums = self._gradient(learner, experience)
        h = learner.hyperparams
        transform = optimizer(h.max_grad_norm, h.learning_rate)
        step, opt_state = transform.update(gradient, learner.opt_state)
        params = optax.apply_updates(learner.policy.params, step)
        target = jax.tree.map(lambda x, y: x + h.target_rate * (y - x), learner.target, params)
        learner = dataclasses.replace(
            learner,
            policy=dataclasses.replace(learner.policy, params=params),
            updates=learner.updates + 1,
            opt_state=opt_state,
            target=target,
        )
        metrics: Metrics = {
            "loss/value": Mean.of(sums["loss"]),
            "grad/norm": Mean.of(optax.tree.norm(gradient)),
            "uniform_dqn/q": Mean.of(sums["q"]),
            "uniform_dqn/reward": Mean.of(sums["reward"]),
            "uniform_dqn/value": Mean.of(sums["value"]),
            self.updates_metric: Last(learner.updates),
        }
        return Learned(learner, sums["error"], metrics)

    def is_finite(self, learner: DQNState, metrics: Metrics) -> Array:
        # Rewards and values of the latest rollout beside the loss: what was not drawn counts as well.
        checked = [metrics[name] for name in self.metrics if name != self.updates_metric]
        return jnp.isfinite(jnp.stack(jax.tree.leaves(checked))).all()

    def inspect(self, learner: DQNState, experience: Sample, key: Array) -> dict[str, Array]:
        gradient, sums = self._gradient(learner, experience)
        rows = experience.rows
        layers = self.agent.network.layers(
            learner.policy.params, rows["obs"], experience.carry, rows["reset"], rows["action_mask"]
        )
        wrong = {f"output/{i:03}/{name}": ~jnp.isfinite(x).all() for i, (name, x) in enumerate(layers)}
        found = {name: x > 0 for name, x in self.axis.psum(jax.tree.map(jnp.int32, wrong)).items()}
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            found[f"gradient/{name}"] = ~jnp.isfinite(leaf).all()
        found |= {"loss/value": sums["loss"], "grad/norm": optax.tree.norm(gradient)}
        return {name: x[None, None] for name, x in found.items()}

    def _gradient(self, learner: DQNState, sample: Sample) -> tuple[PyTree, dict[str, Array]]:
        """(gradient of the mean loss, means over all devices)."""
        rows, usable = sample.rows, sample.usable
        arguments = (rows["obs"], sample.carry, rows["reset"], rows["action_mask"])
        following = self.agent.apply(learner.policy.replace(params=learner.target), *arguments).value[1:]
        goes_on = 1.0 - rows["terminated"][:-1].astype(jnp.float32)
        target = rows["reward"][:-1] + learner.hyperparams.gamma * goes_on * following

        def total(x: Array) -> Array:
            return jnp.where(usable, x, 0.0).sum()

        def loss(params: PyTree) -> tuple[Array, dict[str, Array]]:
            out = self.agent.apply(learner.policy.replace(params=params), *arguments)
            q = value_of(out.q[:-1], rows["action"][:-1])
            # Before the square: the gradient of `where` lets a NaN pass.
            error = jnp.where(usable, q - target, 0.0)
            found = 0.5 * jnp.square(error).sum()
            return found, {"loss": found, "q": total(q), "error": jnp.abs(error).sum()}

        gradient, sums = jax.grad(loss, has_aux=True)(learner.policy.params)
        size = jnp.float32(sample.latest_reward.size)
        latest = {"reward": sample.latest_reward.sum(), "value": sample.latest_value.sum()}
        count = usable.sum(dtype=jnp.float32)
        gradient, sums, latest, count, size = self.axis.psum((gradient, sums, latest, count, size))
        count = jnp.maximum(count, 1.0)
        means = jax.tree.map(lambda x: x / count, (gradient, sums))
        return means[0], means[1] | jax.tree.map(lambda x: x / size, latest)
