"""R2D2: recurrent Q-learning from replayed sequences, with stored carries and burn-in.

Kapturowski et al. 2019, "Recurrent experience replay in distributed reinforcement learning".
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl.algorithms.q_replay_algorithm import QReplayAlgorithm, QState
from jaxrl.algorithms.q_values import QAgent, n_step_target, next_value, value_of
from jaxrl.algorithms.r2d2.losses import inverse_rescale, rescale, sequence_error
from jaxrl.algorithms.replay import SequenceBatch, SequencePlan, n_step_return
from jaxrl.config import Config, ConfigError, R2D2Config
from jaxrl.envs.base import EnvSpec
from jaxrl.types import Array, PyTree


@dataclass(frozen=True)
class R2D2(QReplayAlgorithm):
    """Q-learning from sequences; the network runs over each from the carry that acting had."""

    name: ClassVar = "r2d2"
    config_section: ClassVar = R2D2Config
    watched: ClassVar = ("loss/value", "grad/norm", "r2d2/reward", "r2d2/value")
    highlights: ClassVar = QReplayAlgorithm.highlights_of("r2d2")

    @classmethod
    def build_agent(cls, config: Config, spec: EnvSpec) -> QAgent:
        section = config.learner_as(R2D2Config)
        if section.hindsight != "none":
            raise ConfigError(
                f"`r2d2.hindsight` (={section.hindsight!r}) must be 'none': stored carries belong to "
                "the goal that was played for; hindsight needs `dqn`"
            )
        agent = cls.q_agent(config, spec)
        if config.network.core == "none":
            raise ConfigError(
                "`network.core` (='none') must be a recurrent core: `algorithm` (='r2d2') replays sequences; "
                "for a network without memory use `dqn`"
            )
        return dataclasses.replace(agent, rescaled=section.value_rescaling)

    @property
    def r2d2(self) -> R2D2Config:
        return self.config.learner_as(R2D2Config)

    @property
    def sequences(self) -> SequencePlan:
        section = self.r2d2
        return SequencePlan(
            burn_in=section.burn_in,
            length=section.trace_length,
            interval=section.trace_length - section.overlap,
        )

    def gradient(self, learner: QState, batch: SequenceBatch) -> tuple[PyTree, dict[str, Array], Array]:
        of_target = self._q(learner, learner.target, batch)
        usable = batch.usable

        def loss(params: PyTree) -> tuple[Array, tuple[dict[str, Array], Array]]:
            q = self._q(learner, params, batch)
            target = self._targets(learner, batch, jax.lax.stop_gradient(q), of_target)
            taken = value_of(q[: len(usable)], batch.action)
            # Before the square: the gradient of `where` lets a NaN pass.
            error = jnp.where(usable, taken - target, 0.0)
            found = (0.5 * batch.weight[None] * jnp.square(error)).sum()
            return found, ({"loss": found, "q": jnp.where(usable, taken, 0.0).sum()}, error)

        gradient, sums, error = self.mean_gradient(loss, learner.policy.params, usable)
        return gradient, sums, sequence_error(error, usable, self.r2d2.priority_eta)

    def layers(self, learner: QState, batch: SequenceBatch) -> list[tuple[str, Array]]:
        inputs = (batch.obs, batch.carry, batch.reset, batch.action_mask)
        return self.agent.network.layers(learner.policy.params, *inputs)

    def _targets(self, learner: QState, batch: SequenceBatch, q: Array, of_target: Array) -> Array:
        """float32[L, N], the targets of the steps that are learnt from.

        Args:
          q, of_target: float32[L + K, N, A], of the network and of the target network from the first of
            these steps on.
        """
        following = next_value(of_target, q if self.r2d2.double else None)
        steps = batch.counts.sum(axis=1, dtype=jnp.int32)
        after = jnp.take_along_axis(following, jnp.arange(len(steps))[:, None] + steps, axis=0)
        total, discount = jax.vmap(n_step_return, in_axes=(0, 0, None))(
            batch.reward, batch.counts, learner.hyperparams.gamma
        )
        if not self.r2d2.value_rescaling:
            return n_step_target(total, discount, batch.terminated, after)
        return rescale(n_step_target(total, discount, batch.terminated, inverse_rescale(after)))

    def _q(self, learner: QState, params: PyTree, batch: SequenceBatch) -> Array:
        """float32[L + K, N, A] after the burn-in, which no gradient enters."""
        acting = dataclasses.replace(learner.policy, params=params)
        inputs = (batch.obs, batch.reset, batch.action_mask)
        start = self.r2d2.burn_in
        carry = batch.carry
        if start:
            obs, reset, mask = jax.tree.map(lambda x: x[:start], inputs)
            carry = jax.lax.stop_gradient(self.agent.apply(acting, obs, carry, reset, mask).carry)
        obs, reset, mask = jax.tree.map(lambda x: x[start:], inputs)
        return self.agent.apply(acting, obs, carry, reset, mask).q
