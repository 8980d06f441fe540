"""PPO: advantages over a trajectory, then epochs of clipped updates (Schulman et al. 2017)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms import optimizer
from jaxrl.algorithms.actor_critic import ActorCritic, load
from jaxrl.algorithms.base import OF_ACTOR_CRITICS, OF_MINIBATCHES, Learned
from jaxrl.algorithms.minibatch_algorithm import MinibatchAlgorithm, Prepared
from jaxrl.algorithms.ppo import kickstarting, losses
from jaxrl.algorithms.ppo.kickstarting import PPOState
from jaxrl.algorithms.rollout_state import RolloutState
from jaxrl.algorithms.sequences import Batch, Sequences, parts
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
        prepared = self.with_advantages(learner, trajectory, self.config.ppo.normalize_advantages)
        learner = prepared.learner
        batch = prepared.batch
        if trajectory.behaviour is not None:
            batch = self._proximal_batch(learner.policy, batch)
        if learner.teacher is not None:
            learner, batch = kickstarting.consult(self.agent, learner, trajectory, batch)
        return dataclasses.replace(prepared, learner=learner, batch=batch)

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
        total = optimizer.planned_updates(self.config, learner)
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

    def _proximal_batch(self, proximal: Acting, batch: Batch) -> Batch:
        """The batch for an update that starts from `proximal`, if an older policy collected it.

        The decoupled objective of Hilton et al. 2021, "Batch size-invariance for policy optimization":

            w min(r A, clip(r, 1 - epsilon, 1 + epsilon) A)
            r = pi / pi_proximal,    w = pi_proximal / pi_behaviour

        Clipping and `ppo.target_kl` limit how far the update goes, and not how old the data are.

        Args:
          batch: of this device; its rows `log_prob` and `value` are the behaviour policy's, `advantage` is A.

        Returns:
          The batch with the proximal policy's `log_prob` and `value`, and with w A as `advantage`.
        """
        log_prob_TB, value_TB = self._evaluate(proximal, batch)
        weight_TB = losses.importance_weight(log_prob_TB, batch.rows["log_prob"])
        rows = {"log_prob": log_prob_TB, "value": value_TB, "advantage": batch.rows["advantage"] * weight_TB}
        if batch.valid is not None:
            rows = {name: jnp.where(batch.valid, x, 0.0) for name, x in rows.items()}
        return dataclasses.replace(batch, rows=batch.rows | rows)

    def _evaluate(self, acting: Acting, batch: Batch) -> tuple[Array, Array]:
        """Log-probabilities and values, float32[T, B], from the stored carries as in an update.

        As many environments at a time as in a minibatch or a part of one: they fit where its gradient fits.
        """
        config = self.config
        chunks = config.num_chunks
        length = config.sequence_length
        envs = config.rows_per_device
        minibatches = config.ppo.minibatch_envs(config.env.rows)
        divided = parts(
            config.ppo.gradient_accumulation,
            chunks=chunks,
            environments=envs // minibatches,
            length=length,
            agent=self.agent,
            axis=self.axis,
            obs=batch.obs,
        )
        groups = minibatches * divided[1]

        def evaluate(environment_G: Array) -> tuple[Array, Array]:
            sequences = Sequences(jnp.broadcast_to(environment_G[None], (chunks, *environment_G.shape)))
            part = batch.take(sequences, length)
            out = self.agent.apply(acting, part.obs, part.carry, part.reset, part.action_mask)
            return out.distribution.log_prob(part.action), out.value

        def whole(x: Array) -> Array:
            by_group = x.reshape(groups, length, chunks, -1)
            return by_group.transpose(2, 1, 0, 3).reshape(config.rollout_length, -1)

        log_prob, value = jax.lax.map(evaluate, jnp.arange(envs).reshape(groups, -1))
        return whole(log_prob), whole(value)
