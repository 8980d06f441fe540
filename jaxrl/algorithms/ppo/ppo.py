"""PPO: advantages over a trajectory, then epochs of clipped updates (Schulman et al. 2017)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl.algorithms import optimizer
from jaxrl.algorithms.actor_critic import VALUE_HEAD, ActorCritic
from jaxrl.algorithms.advantage import explained_variance, global_moments, standardize
from jaxrl.algorithms.auxiliary import load
from jaxrl.algorithms.base import Learned, read_hyperparams
from jaxrl.algorithms.batch import Batch
from jaxrl.algorithms.minibatch_algorithm import MinibatchAlgorithm, Prepared
from jaxrl.algorithms.offered_options import OF_ACTOR_CRITICS, OF_MINIBATCHES
from jaxrl.algorithms.ppo import losses
from jaxrl.algorithms.ppo import teacher as teaching
from jaxrl.algorithms.ppo.hyperparams import PPOHyperparams
from jaxrl.algorithms.ppo.proximal import proximal_batch
from jaxrl.algorithms.ppo.teacher import PPOState
from jaxrl.algorithms.rollout_state import RolloutState
from jaxrl.config import Config, PPOConfig
from jaxrl.envs.base import EnvSpec
from jaxrl.metrics.reduction import Mean
from jaxrl.networks.divergence import kl_divergence
from jaxrl.types import Acting, Array, PyTree, Trajectory

# Of a batch: the teacher's distribution at each step.
_TEACHER = "teacher"


@dataclass(frozen=True)
class PPO(MinibatchAlgorithm):
    """Proximal policy optimisation for recurrent policies."""

    agent: ActorCritic

    name: ClassVar = "ppo"
    signals: ClassVar = ("advantage", "value")
    config_section: ClassVar = PPOConfig
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
        return ActorCritic.build(config.network, spec, config.normalize, auxiliary)

    @property
    def reported(self) -> tuple[str, ...]:
        own = ("loss/auxiliary", *self.agent.auxiliary.metrics) if self.agent.auxiliary else ()
        if self.config.ppo.teacher:
            own = ("ppo/teacher_kl", "ppo/teacher_coef", *own)
        if self._falling_entropy:
            own = ("ppo/entropy_coef", *own)
        return ("loss/policy", "loss/value", "loss/entropy", "ppo/approx_kl", "ppo/clip_fraction", *own)

    @property
    def teacher(self) -> tuple[str, str]:
        return "ppo.teacher", self.config.ppo.teacher

    @classmethod
    def hyperparameters(cls, config: Config) -> PPOHyperparams:
        return read_hyperparams(PPOHyperparams, config.learner)

    def init(self, key: Array, hyperparams: PPOHyperparams) -> PPOState:
        learner = super().init(key, hyperparams)
        assert isinstance(learner, PPOState)
        if not self.config.ppo.teacher:
            return learner
        return teaching.expect(self.agent, learner, self.config.rows_per_device)

    def with_teacher(self, learner: PPOState, acting: Acting) -> PPOState:
        return dataclasses.replace(learner, teacher=acting)

    def keeps_statistics(self, learner: PPOState) -> Array | None:
        # Other statistics would be another policy.
        return self._warms_up(learner) if self.config.ppo.value_warmup else None

    def learn(self, learner: PPOState, experience: Trajectory, key: Array) -> Learned:
        learned = super().learn(learner, experience, key)
        if not self.config.ppo.value_warmup:
            return learned
        after: PPOState = learned.learner
        # Adam has counted updates in which the policy had no gradients: with means that start from 0 and a
        # correction that is over, its first steps would be three times as long as a fresh Adam's.
        ends = self._warms_up(learner) & ~self._warms_up(after)
        fresh = jax.tree.map(lambda x: jnp.where(ends, jnp.zeros_like(x), x), after.opt_state)
        return dataclasses.replace(learned, learner=dataclasses.replace(after, opt_state=fresh))

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
            learner, taught = teaching.consult(self.agent, learner, trajectory)
            batch = dataclasses.replace(batch, rows=batch.rows | {_TEACHER: taught})
        explained = Mean.of(explained_variance(variance[1], variance[2]))
        signals = {"advantage": target_TB - value_TB, "value": value_TB}
        return Prepared(learner, batch, {"ppo/explained_variance": explained}, signals)

    def loss(
        self, learner: RolloutState, params: PyTree, batch: Batch, key: Array
    ) -> tuple[Array, dict[str, Array], None]:
        hyperparams = learner.hyperparams
        rows = batch.rows
        if self.config.ppo.value_warmup:
            params = self._without_policy(learner, params)
        out = self.output(learner, params, batch)
        log_prob = out.distribution.log_prob(batch.action)
        clip = hyperparams.clip_range
        if self.config.ppo.clip_value:
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
        weight = self._entropy_weight(learner)
        if self._falling_entropy:
            sums["ppo/entropy_coef"] = batch.total(jnp.broadcast_to(weight, policy.shape))
        entropy = weight * sums["loss/entropy"]
        loss = sums["loss/policy"] + hyperparams.value_coef * sums["loss/value"] - entropy
        if self.agent.auxiliary:
            found, metrics = self.agent.auxiliary(params, out.features, out, batch)
            sums |= {name: batch.total(x) for name, x in metrics.items()}
            sums["loss/auxiliary"] = batch.total(found)
            loss = loss + sums["loss/auxiliary"]
        if _TEACHER in rows:
            pull = teaching.weight(self.config, learner)
            kl = kl_divergence(rows[_TEACHER], out.distribution)
            sums["ppo/teacher_kl"] = batch.total(kl)
            sums["ppo/teacher_coef"] = batch.total(jnp.broadcast_to(pull, kl.shape))
            loss = loss + pull * sums["ppo/teacher_kl"]
        if self.config.ppo.value_warmup:
            # The gradient of the branch that is not taken is 0.
            only_value = hyperparams.value_coef * sums["loss/value"]
            loss = jnp.where(self._warms_up(learner), only_value, loss)
        return loss, sums, None

    @property
    def _falling_entropy(self) -> bool:
        return self.config.ppo.entropy_schedule != "constant"

    def _entropy_weight(self, learner: RolloutState) -> Array:
        """float32[]: of the entropy bonus, the same in all updates on a rollout."""
        peak: Array = learner.hyperparams.entropy_coef
        if not self._falling_entropy:
            return peak
        schedule = self.config.ppo.entropy_schedule
        total = self.config.total_updates
        return peak * optimizer.schedule_factor(schedule, learner.updates, total, elapsed=learner.elapsed)

    def _warms_up(self, learner: RolloutState) -> Array:
        """bool[], True if only the value function learns."""
        planned = self.config.ppo.value_warmup * self.config.updates_per_iteration
        return learner.updates < planned

    def _without_policy(self, learner: RolloutState, params: PyTree) -> PyTree:
        """The parameters, without gradients of what the policy reads as long as only the value learns.

        A value function with a trunk of its own shares nothing with the policy.
        """
        if self.config.network.has_own_value:
            return params
        warms_up = self._warms_up(learner)
        fixed = lambda x: jnp.where(warms_up, jax.lax.stop_gradient(x), x)  # noqa: E731
        return {
            name: part if name == VALUE_HEAD else jax.tree.map(fixed, part) for name, part in params.items()
        }

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
