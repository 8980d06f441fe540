"""A custom algorithm: REINFORCE with a baseline (Williams 1992).

Command:  jaxrl train ppo_mlp --config.algorithm=reinforce:Reinforce --config.reinforce.learning_rate=3e-3
"""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms import (
    OF_ACTOR_CRITICS,
    OF_MINIBATCHES,
    ActorCritic,
    MinibatchAlgorithm,
    Prepared,
)
from jaxrl.config import MinibatchConfig, field
from jaxrl.config.fields import at_least, between


@dataclasses.dataclass(frozen=True)
class ReinforceConfig(MinibatchConfig):
    """REINFORCE (Williams 1992): one update on each rollout."""

    num_epochs: int = field(1, at_least(1), help="passes over each rollout")
    num_minibatches: int = field(1, at_least(1), help="updates in each pass")
    learning_rate: float = field(1e-3, at_least(0), help="peak learning rate of Adam")
    gamma: float = field(0.99, between(0, 1), help="discount factor")


@flax.struct.dataclass
class Hyperparams:
    """The fields that may differ in a sweep, or between members of a population."""

    learning_rate: jax.Array
    max_grad_norm: jax.Array
    gamma: jax.Array


class Reinforce(MinibatchAlgorithm):
    """Makes actions likelier by how much more came after them than the value function expected."""

    name = "reinforce"
    config_section = ReinforceConfig
    hyperparams_type = Hyperparams
    offers = OF_MINIBATCHES | OF_ACTOR_CRITICS
    reported = ("loss/policy", "loss/value")
    highlights = (("loss/policy", "policy loss"), ("loss/value", "value loss"))

    @classmethod
    def build_agent(cls, config, spec):
        return ActorCritic.build(config.network, spec, config.normalize)

    def prepare(self, learner, trajectory):
        learner, reward = self.scaled_rewards(learner, trajectory)
        # With lambda 1 the targets are rewards-to-go, and an advantage is one of them minus the value.
        advantage, to_go = self.advantages(trajectory, reward, learner.hyperparams.gamma, gae_lambda=1.0)
        rows = {"advantage": advantage, "to_go": to_go}
        return Prepared(learner, self.batch(learner, trajectory, rows), metrics={})

    def loss(self, learner, params, batch, key):
        out, rows = self.output(learner, params, batch), batch.rows
        policy = batch.total(-out.distribution.log_prob(batch.action) * rows["advantage"])
        value = batch.total(0.5 * jnp.square(out.value - rows["to_go"]))
        return policy + value, {"loss/policy": policy, "loss/value": value}, None
