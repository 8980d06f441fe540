"""R2D2: recurrent Q-learning from replayed sequences, with stored carries and burn-in.

Kapturowski et al. 2019, "Recurrent experience replay in distributed reinforcement learning".
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl.algorithms.optimizer import Gradient
from jaxrl.algorithms.q_replay_algorithm import QReplayAlgorithm, QState
from jaxrl.algorithms.q_values import QAgent, QOutput, n_step_target, next_value, value_of
from jaxrl.algorithms.replay import SequenceBatch, SequencePlan, n_step_return, sequence_error
from jaxrl.algorithms.replay_algorithm import after_burn_in
from jaxrl.config import Config, ConfigError, R2D2Config
from jaxrl.envs.base import EnvSpec
from jaxrl.types import Array, PyTree

_EPSILON = 1e-3


def rescale(x: Array) -> Array:
    """float32[...], h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x, eps = 1e-3 (Pohlen et al. 2018)."""
    y = jnp.abs(x)
    # sqrt(y + 1) - 1, without the difference, which would be rounded to nothing for small rewards.
    return jnp.sign(x) * y / (jnp.sqrt(y + 1.0) + 1.0) + _EPSILON * x


def inverse_rescale(x: Array) -> Array:
    """float32[...], the inverse of `rescale`.

    u = sqrt(|h^-1(x)| + 1) - 1 is the root of eps u^2 + (1 + 2 eps) u = |x|, here without a difference of
    nearly equal numbers, which in float32 would leave three digits.
    """
    y = jnp.abs(x)
    linear = 1.0 + 2.0 * _EPSILON
    u = 2.0 * y / (linear + jnp.sqrt(linear**2 + 4.0 * _EPSILON * y))
    return jnp.sign(x) * u * (u + 2.0)


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

    def gradient(self, learner: QState, batch: SequenceBatch) -> tuple[Gradient, dict[str, Array], Array]:
        of_target = self._q(learner, learner.target, batch)
        usable = batch.usable

        def loss(params: PyTree) -> tuple[Array, tuple[dict[str, Array], Array]]:
            q = self._q(learner, params, batch)
            target = self._targets(learner, batch, jax.lax.stop_gradient(q), of_target)
            taken = value_of(q[: len(usable)], batch.action)
            return self.squared_errors(taken, target, batch)

        gradient, sums, error = self.mean_gradient(loss, learner.policy.params, usable)
        return gradient, sums, sequence_error(error, usable, self.r2d2.priority_eta)

    def layers(self, learner: QState, batch: SequenceBatch) -> list[tuple[str, Array]]:
        inputs = (batch.obs, batch.carry, batch.reset, batch.action_mask)
        return self.agent.network.layers(learner.policy.params, *inputs)

    def _targets(self, learner: QState, batch: SequenceBatch, q: Array, of_target: Array) -> Array:
        """float32[L, N], the targets of the steps that are learnt from.

        `q` and `of_target` are float32[L + K, N, A] from the first of these steps on.
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

        def run(inputs: tuple[PyTree, Array, Array | None], carry: PyTree) -> QOutput:
            obs, reset, mask = inputs
            return self.agent.apply(acting, obs, carry, reset, mask)

        inputs = (batch.obs, batch.reset, batch.action_mask)
        return run(*after_burn_in(lambda *x: run(*x).carry, inputs, batch.carry, self.r2d2.burn_in)).q
