"""PQN: Q(lambda) from rollouts of many environments.

Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import flax.struct
import jax.numpy as jnp

from jaxrl.algorithms.base import OF_MINIBATCHES
from jaxrl.algorithms.minibatch_algorithm import MinibatchAlgorithm, Prepared
from jaxrl.algorithms.q_values import QAgent, falling_epsilon, value_of
from jaxrl.algorithms.rollout_state import RolloutState
from jaxrl.algorithms.sequences import Batch
from jaxrl.config import Config, PQNConfig
from jaxrl.envs.base import EnvSpec
from jaxrl.metrics.reduction import Mean
from jaxrl.types import Array, PyTree, Trajectory


@flax.struct.dataclass
class PQNHyperparams:
    """Numeric hyperparameters: float32 scalars and pytree leaves, so that a sweep can vmap over them."""

    learning_rate: Array
    gamma: Array
    q_lambda: Array
    exploration_start: Array
    exploration_end: Array
    exploration_fraction: Array
    max_grad_norm: Array


@dataclass(frozen=True)
class PQN(MinibatchAlgorithm):
    """Q-learning without replay and target network; layer normalisation keeps it stable."""

    agent: QAgent

    name: ClassVar = "pqn"
    signals: ClassVar = ("advantage", "value")
    config_section: ClassVar = PQNConfig
    hyperparams_type: ClassVar = PQNHyperparams
    offers: ClassVar = OF_MINIBATCHES
    reported: ClassVar = ("loss/value", "pqn/q")
    own_metrics: ClassVar = {"pqn/epsilon": Mean}
    highlights: ClassVar = (
        ("loss/value", "value loss"),
        ("pqn/q", "Q-value"),
        ("pqn/epsilon", "epsilon"),
        ("grad/norm", "grad norm"),
        ("pqn/learning_rate", "learning rate"),
    )

    @classmethod
    def build_agent(cls, config: Config, spec: EnvSpec) -> QAgent:
        dueling = config.learner_as(PQNConfig).dueling
        return QAgent.build(config.network, spec, config.normalize, dueling)

    def exploration(self, learner: RolloutState) -> Array:
        """float32[], epsilon: falls linearly with the updates made, or with time."""
        return falling_epsilon(self.config, learner)

    def prepare(self, learner: RolloutState, trajectory: Trajectory) -> Prepared:
        epsilon = Mean.of(self.exploration(learner))
        learner, reward_TB = self.scaled_rewards(learner, trajectory)
        h = learner.hyperparams
        # With max_a Q as the value, the target of generalised advantages is Peng's Q(lambda):
        #     G_t = r_t + gamma (lambda G_{t+1} + (1 - lambda) max_a Q(s_{t+1}, a))
        _, target_TB = self.advantages(trajectory, reward_TB, h.gamma, h.q_lambda)
        batch = self.batch(learner, trajectory, {**trajectory.extras, "target": target_TB})
        value_TB = trajectory.extras["value"]
        signals = {"advantage": target_TB - value_TB, "value": value_TB}
        return Prepared(learner, batch, {"pqn/epsilon": epsilon}, signals)

    def loss(
        self, learner: RolloutState, params: PyTree, batch: Batch, key: Array
    ) -> tuple[Array, dict[str, Array], None]:
        out = self.output(learner, params, batch)
        q = value_of(out.q, batch.action)
        error = batch.total(0.5 * jnp.square(q - batch.rows["target"]))
        return error, {"loss/value": error, "pqn/q": batch.total(q)}, None
