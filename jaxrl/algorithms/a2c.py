"""A2C: one step along the policy gradient for each rollout (Mnih et al. 2016, synchronously)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import flax.struct
import jax.numpy as jnp

from jaxrl.algorithms.actor_critic import ActorCritic
from jaxrl.algorithms.base import OF_ACTOR_CRITICS, OF_MINIBATCHES
from jaxrl.algorithms.minibatch_algorithm import MinibatchAlgorithm, Prepared
from jaxrl.algorithms.rollout_state import RolloutState
from jaxrl.algorithms.sequences import Batch
from jaxrl.config import A2CConfig, Config
from jaxrl.envs.base import EnvSpec
from jaxrl.metrics.reduction import Mean
from jaxrl.types import Array, PyTree, Trajectory


@flax.struct.dataclass
class A2CHyperparams:
    """Numeric hyperparameters: float32 scalars and pytree leaves, so that a sweep can vmap over them."""

    learning_rate: Array
    gamma: Array
    gae_lambda: Array
    entropy_coef: Array
    value_coef: Array
    max_grad_norm: Array


@dataclass(frozen=True)
class A2C(MinibatchAlgorithm):
    """Advantage actor-critic for recurrent policies."""

    agent: ActorCritic

    name: ClassVar = "a2c"
    signals: ClassVar = ("advantage", "value")
    config_section: ClassVar = A2CConfig
    hyperparams_type: ClassVar = A2CHyperparams
    offers: ClassVar = OF_MINIBATCHES | OF_ACTOR_CRITICS | {"network.central_value"}
    reported: ClassVar = ("loss/policy", "loss/value", "loss/entropy")
    own_metrics: ClassVar = {"a2c/explained_variance": Mean}
    highlights: ClassVar = (
        ("loss/policy", "policy loss"),
        ("loss/value", "value loss"),
        ("loss/entropy", "entropy"),
        ("a2c/explained_variance", "explained var."),
        ("grad/norm", "grad norm"),
        ("a2c/learning_rate", "learning rate"),
    )

    @classmethod
    def build_agent(cls, config: Config, spec: EnvSpec) -> ActorCritic:
        return ActorCritic.build(config.network, spec, config.normalize)

    def prepare(self, learner: RolloutState, trajectory: Trajectory) -> Prepared:
        section = self.config.learner_as(A2CConfig)
        return self.with_advantages(learner, trajectory, section.normalize_advantages)

    def loss(
        self, learner: RolloutState, params: PyTree, batch: Batch, key: Array
    ) -> tuple[Array, dict[str, Array], None]:
        hyperparams = learner.hyperparams
        rows = batch.rows
        out = self.output(learner, params, batch)
        log_prob = out.distribution.log_prob(batch.action)
        sums = {
            "loss/policy": batch.total(-log_prob * rows["advantage"]),
            "loss/value": batch.total(0.5 * jnp.square(out.value - rows["target"])),
            "loss/entropy": batch.total(out.distribution.entropy()),
        }
        entropy = hyperparams.entropy_coef * sums["loss/entropy"]
        return sums["loss/policy"] + hyperparams.value_coef * sums["loss/value"] - entropy, sums, None
