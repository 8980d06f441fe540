"""Parts that DQN and R2D2 share: Q-learning from a replay memory, with a target network."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.base import Learned
from jaxrl.algorithms.optimizer import Gradient, optimizer, planned_updates, schedule_factor
from jaxrl.algorithms.q_values import LadderQAgent, QAgent, falling_epsilon, ladder, polyak_update
from jaxrl.algorithms.replay import hindsight_plan
from jaxrl.algorithms.replay_algorithm import ReplayAlgorithm, usable_sum
from jaxrl.config import Config, ConfigError, DQNConfig
from jaxrl.envs.base import Discrete, EnvSpec
from jaxrl.metrics import tracing
from jaxrl.metrics.reduction import Last, Mean, Metric
from jaxrl.networks.distributions import to_rank_of
from jaxrl.types import Array, LearnerState, PyTree


@flax.struct.dataclass
class QHyperparams:
    """Numeric hyperparameters: float32 scalars and pytree leaves, so that a sweep can vmap over them."""

    learning_rate: Array
    gamma: Array
    exploration_start: Array
    exploration_end: Array
    exploration_fraction: Array
    target_period: Array
    target_rate: Array
    max_grad_norm: Array


@flax.struct.dataclass
class QState(LearnerState):
    """The state of Q-learning, with the parameters of the target network."""

    opt_state: PyTree
    target: PyTree


class QReplayAlgorithm(ReplayAlgorithm):
    """One update on each batch from the replay memory; none before enough is kept."""

    agent: QAgent
    hyperparams_type: ClassVar = QHyperparams
    state_type: ClassVar = QState
    keeps_learner: ClassVar = True

    @classmethod
    def highlights_of(cls, name: str) -> tuple[tuple[str, str], ...]:
        """`Algorithm.highlights` of the algorithm called `name`."""
        return (
            ("loss/value", "value loss"),
            (f"{name}/q", "Q-value"),
            (f"{name}/epsilon", "epsilon"),
            ("grad/norm", "grad norm"),
        )

    @classmethod
    def q_agent(cls, config: Config, spec: EnvSpec) -> QAgent:
        """The agent of a configuration, for an environment; ConfigError if actions are not discrete."""
        section = config.learner_as(DQNConfig)
        if not isinstance(spec.action_space, Discrete):
            raise ConfigError(
                f"`algorithm` (={cls.name!r}) needs discrete actions; the actions of {spec.name!r} are "
                f"{spec.action_space}: use `sac`"
            )
        hindsight_plan(config, spec)  # raises what is wrong with it
        given = (config.network, spec, config.normalize, section.dueling, True)
        if section.exploration == "ladder":
            return dataclasses.replace(LadderQAgent.build(*given), num_envs=config.env.num_envs)
        return QAgent.build(*given)

    @abc.abstractmethod
    def gradient(self, learner: QState, batch: Any) -> tuple[Gradient, dict[str, Array], Array]:
        """The gradient of the mean loss on a batch, with its means and errors.

        Returns:
          (gradient, means over all devices `loss` and `q`, float32[N] errors for the memory of this one).
        """

    def squared_errors(
        self, q: Array, target: Array, batch: Any
    ) -> tuple[Array, tuple[dict[str, Array], Array]]:
        """(half the weighted squared errors, (sums `loss` and `q`, the errors)), to take the gradient of."""
        # Before the square: the gradient of `where` lets a NaN pass.
        error = jnp.where(batch.usable, q - target, 0.0)
        loss = (0.5 * to_rank_of(error, batch.weight) * jnp.square(error)).sum()
        return loss, ({"loss": loss, "q": usable_sum(q, batch.usable)}, error)

    @abc.abstractmethod
    def layers(self, learner: QState, batch: Any) -> list[tuple[str, Array]]:
        """The outputs of the network's layers on a batch, by name."""

    @property
    def section(self) -> DQNConfig:
        return self.config.learner_as(DQNConfig)

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        own = ("q", "epsilon", "reward", "value", "transitions")
        return self.declared(("loss/value", "grad/norm", *(f"{self.name}/{x}" for x in own)))

    def init(self, key: Array, hyperparams: QHyperparams) -> QState:
        policy = self.agent.init(key)
        return QState(
            policy=policy,
            hyperparams=hyperparams,
            updates=jnp.zeros((), jnp.int32),
            opt_state=optimizer(hyperparams.max_grad_norm, 0.0).init(policy.params),
            # Not the same arrays: all of the state is donated.
            target=jax.tree.map(jnp.copy, policy.params),
        )

    def exploration(self, learner: QState) -> Array:
        """float32[], epsilon: falls linearly with the updates made, or with time; 1 times the ladder's."""
        if self.section.exploration == "ladder":
            return jnp.ones((), jnp.float32)
        return falling_epsilon(self.config, learner)

    def scheduled_values(self, learner: LearnerState) -> dict[str, float]:
        rate = {"learning rate": float(self._learning_rate(learner))}
        return rate if self.section.exploration == "ladder" else rate | super().scheduled_values(learner)

    def learn(self, learner: QState, experience: Any, key: Array) -> Learned:
        with tracing.phase("update"):
            gradient, sums, error = self.gradient(learner, experience)
            means = {"loss/value": sums["loss"], "grad/norm": gradient.norm, f"{self.name}/q": sums["q"]}
            metrics = self.means_if(experience.ready, means, gradient) | self.latest(experience, "value")
            metrics[f"{self.name}/epsilon"] = Mean.of(self._mean_epsilon(learner))
            made = experience.ready & self.is_finite(learner, metrics)
            after = self._after_step(learner, gradient, made)
        metrics[self.updates_metric] = Last(after.updates)
        return Learned(after, experience.feedback(error), metrics)

    def inspect(self, learner: QState, experience: Any, key: Array) -> dict[str, Array]:
        gradient, sums, _ = self.gradient(learner, experience)
        means = {"loss/value": sums["loss"], "grad/norm": gradient.norm}
        return self.inspected(self.layers(learner, experience), gradient, means)

    def _after_step(self, learner: QState, gradient: Gradient, made: Array) -> QState:
        """After a step of the optimiser, and of the target network if it is its turn."""
        h = learner.hyperparams
        after: QState = self.after_step(learner, gradient, self._learning_rate(learner), made)
        params = after.policy.params
        turn = made & (after.updates % h.target_period.astype(jnp.int32) == 0)

        def moved(target: PyTree) -> PyTree:
            return jax.tree.map(lambda x, y: polyak_update(x, y, h.target_rate), target, params)

        if self.axis.platform == "cpu":
            # A CPU passes over the parameters in their turn alone.
            target = jax.lax.cond(turn, moved, lambda target: target, learner.target)
        else:
            target = jax.tree.map(lambda x, y: jnp.where(turn, y, x), learner.target, moved(learner.target))
        return dataclasses.replace(after, target=target)

    def _learning_rate(self, learner: LearnerState) -> Array:
        total = planned_updates(self.config, learner)
        factor = schedule_factor(self.section.schedule, learner.updates, total, elapsed=learner.elapsed)
        return learner.hyperparams.learning_rate * factor

    def _mean_epsilon(self, learner: QState) -> Array:
        """float32[], over all environments."""
        if self.section.exploration == "ladder":
            envs = self.config.env.num_envs
            return ladder(jnp.arange(envs), envs).mean()
        return self.exploration(learner)
