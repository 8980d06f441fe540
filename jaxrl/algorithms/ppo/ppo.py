"""PPO: advantages over a trajectory, then epochs of clipped updates (Schulman et al. 2017)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import flax.struct
import jax.numpy as jnp

from jaxrl.algorithms import optimizer
from jaxrl.algorithms.actor_critic import ActorCritic
from jaxrl.algorithms.advantage import explained_variance, global_moments, standardize
from jaxrl.algorithms.auxiliary import load
from jaxrl.algorithms.base import Learned
from jaxrl.algorithms.batch import Batch
from jaxrl.algorithms.minibatch_algorithm import MinibatchAlgorithm, Prepared
from jaxrl.algorithms.offered_options import OF_ACTOR_CRITICS, OF_MINIBATCHES
from jaxrl.algorithms.ppo import kickstarting, losses
from jaxrl.algorithms.ppo.kickstarting import PPOState
from jaxrl.algorithms.ppo.proximal import proximal_batch
from jaxrl.algorithms.rollout_state import RolloutState
from jaxrl.config import Config, PPOConfig
from jaxrl.envs.base import EnvSpec
from jaxrl.metrics.reduction import Mean
from jaxrl.types import Acting, Array, PyTree, Trajectory


@flax.struct.dataclass
class PPOHyperparams:
    """Numeric hyperparameters: float32 scalars and pytree leaves, so that a sweep can vmap over them.

    `target_kl` is read only if the configuration sets `ppo.target_kl`: otherwise no stop is compiled in.
    """

    learning_rate: Array
    gamma: Array
    gae_lambda: Array
    clip_range: Array
    entropy_coef: Array
    value_coef: Array
    max_grad_norm: Array
    target_kl: Array


@dataclass(frozen=True)
class PPO(MinibatchAlgorithm):
    """Proximal policy optimisation for recurrent policies."""

    agent: ActorCritic

    name: ClassVar = "ppo"
    signals: ClassVar = ("advantage", "value")
    config_section: ClassVar = PPOConfig
    hyperparams_type: ClassVar = PPOHyperparams
    state_type: ClassVar = PPOState
    offers: ClassVar = OF_MINIBATCHES | OF_ACTOR_CRITICS | {"host.overlap", "network.central_value"}
    own_metrics: ClassVar = {"ppo/explained_variance": Mean}
    highlights: ClassVar = (
        ("loss/policy", "policy loss"),
        ("loss/value", "value loss"),
        ("loss/entropy", "entropy"),
        ("ppo/approx_kl", "approx. KL"),
        ("ppo/clip_fraction", "clip fraction"),
        ("ppo/explained_variance", "explained var."),
        ("grad/norm", "grad norm"),
        ("ppo/learning_rate", "learning rate"),
    )

    @classmethod
    def build_agent(cls, config: Config, spec: EnvSpec) -> ActorCritic:
        auxiliary = load("ppo.auxiliary_loss", config.ppo.auxiliary_loss)
        return dataclasses.replace(
            ActorCritic.build(config.network, spec, config.normalize), auxiliary=auxiliary
        )

    def prepare(self, learner: PPOState, trajectory: Trajectory) -> Prepared:
        learner, reward_TB = self.scaled_rewards(learner, trajectory)
        value_TB = trajectory.extras["value"]
        gamma = learner.hyperparams.gamma
        gae_lambda = learner.hyperparams.gae_lambda
        advantage_TB, target_TB = self.advantages(trajectory, reward_TB, gamma, gae_lambda)
        residual_TB = target_TB - value_TB
        arrays = (advantage_TB, target_TB, residual_TB)
        mean, variance = global_moments(self.axis, arrays, trajectory.valid)
        if self.config.ppo.normalize_advantages:
            advantage_TB = standardize(advantage_TB, mean[0], variance[0])
        rows = {**trajectory.extras, "advantage": advantage_TB, "target": target_TB}
        batch = self.batch(learner, trajectory, rows)
        if trajectory.behaviour is not None:
            batch = proximal_batch(self.config, self.agent, self.axis, learner.policy, batch)
        if learner.teacher is not None:
            learner, batch = kickstarting.consult(self.agent, learner, trajectory, batch)
        explained = Mean.of(explained_variance(variance[1], variance[2]))
        signals = {"advantage": residual_TB, "value": value_TB}
        return Prepared(learner, batch, {"ppo/explained_variance": explained}, signals)

    def loss(
        self, learner: PPOState, params: PyTree, batch: Batch, key: Array
    ) -> tuple[Array, dict[str, Array], None]:
        config = self.config
        hyperparams = learner.hyperparams
        rows = batch.rows
        if config.ppo.value_warmup:
            params = kickstarting.without_policy(config, learner, params)
        out = self.output(learner, params, batch)
        log_prob = out.distribution.log_prob(batch.action)
        clip = hyperparams.clip_range
        if config.ppo.clip_value:
            value = losses.clipped_value_loss(out.value, rows["value"], rows["target"], clip)
        else:
            value = losses.value_loss(out.value, rows["target"])
        policy = self.policy_loss(learner, log_prob, rows["log_prob"], rows["advantage"])
        sums = {
            "loss/policy": batch.total(policy),
            "loss/value": batch.total(value),
            "loss/entropy": batch.total(out.distribution.entropy()),
            "ppo/approx_kl": batch.total(losses.approx_kl(log_prob, rows["log_prob"])),
            "ppo/clip_fraction": batch.total(losses.clip_fraction(log_prob, rows["log_prob"], clip)),
        }
        entropy_coef = self.entropy_coef(learner)
        value_loss = hyperparams.value_coef * sums["loss/value"]
        loss = sums["loss/policy"] + value_loss - entropy_coef * sums["loss/entropy"]
        if config.ppo.entropy_schedule != "constant":
            sums["ppo/entropy_coef"] = batch.total(jnp.broadcast_to(entropy_coef, policy.shape))
        if self.agent.auxiliary:
            added, reported = self.agent.auxiliary(params, out, batch)
            loss, sums = loss + added, sums | reported
        if learner.teacher is not None:
            added, reported = kickstarting.teacher_loss(config, learner, out, batch)
            loss, sums = loss + added, sums | reported
        if config.ppo.value_warmup:
            # The gradient of the branch that is not taken is 0.
            loss = jnp.where(kickstarting.warms_up(config, learner), value_loss, loss)
        return loss, sums, None

    def policy_loss(
        self, learner: RolloutState, log_prob: Array, old_log_prob: Array, advantage: Array
    ) -> Array:
        """The loss of the policy at each step, float32[L, N]; variants with another clipping override it.

        Args:
          learner: before the updates on this trajectory; its hyperparameters hold.
          log_prob: float32[L, N], of the action taken under the present parameters.
          old_log_prob: float32[L, N], of the same action before the updates.
          advantage: float32[L, N].
        """
        return losses.policy_loss(log_prob, old_log_prob, advantage, learner.hyperparams.clip_range)

    def stop(self, learner: RolloutState) -> Callable[[Mapping[str, Array]], Array] | None:
        """Ends the updates on a trajectory once the policy has gone far enough (`ppo.target_kl`)."""
        if self.config.ppo.target_kl is None:
            return None
        return lambda means: jnp.asarray(means["ppo/approx_kl"] > learner.hyperparams.target_kl)

    def entropy_coef(self, learner: RolloutState) -> Array:
        """float32[]: the weight of the entropy bonus, the same in all updates on a rollout."""
        schedule = self.config.ppo.entropy_schedule
        peak: Array = learner.hyperparams.entropy_coef
        total = self.config.total_updates
        return peak * optimizer.schedule_factor(schedule, learner.updates, total, elapsed=learner.elapsed)

    @property
    def reported(self) -> tuple[str, ...]:
        names = ["loss/policy", "loss/value", "loss/entropy", "ppo/approx_kl", "ppo/clip_fraction"]
        if self.config.ppo.entropy_schedule != "constant":
            names.append("ppo/entropy_coef")
        if self.config.ppo.teacher:
            names += kickstarting.METRICS
        if self.agent.auxiliary:
            names += self.agent.auxiliary.reported
        return tuple(names)

    @property
    def teacher(self) -> tuple[str, str]:
        return "ppo.teacher", self.config.ppo.teacher

    def with_teacher(self, learner: PPOState, acting: Acting) -> PPOState:
        return dataclasses.replace(learner, teacher=acting)

    def init(self, key: Array, hyperparams: PPOHyperparams) -> PPOState:
        learner = super().init(key, hyperparams)
        assert isinstance(learner, PPOState)
        if not self.config.ppo.teacher:
            return learner
        return kickstarting.expect(self.agent, learner, self.config.rows_per_device)

    def learn(self, learner: PPOState, experience: Trajectory, key: Array) -> Learned:
        learned = super().learn(learner, experience, key)
        if not self.config.ppo.value_warmup:
            return learned
        after = kickstarting.after_warmup(self.config, learner, learned.learner)
        return dataclasses.replace(learned, learner=after)
