"""DQN: Q-learning from a replay memory, with a target network.

Mnih et al. 2015, "Human-level control through deep reinforcement learning"; double, dueling, prioritised and
n-step as in Hessel et al. 2018, "Rainbow".
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxrl.algorithms.optimizer import Gradient
from jaxrl.algorithms.q_replay_algorithm import QReplayAlgorithm, QState
from jaxrl.algorithms.q_values import QAgent, n_step_target, next_value, value_of
from jaxrl.algorithms.replay import Transitions, n_step_return
from jaxrl.config import Config, ConfigError, DQNConfig
from jaxrl.envs.base import EnvSpec
from jaxrl.types import Array, PyTree


@dataclass(frozen=True)
class DQN(QReplayAlgorithm):
    """Q-learning from single transitions, without memory."""

    name: ClassVar = "dqn"
    config_section: ClassVar = DQNConfig
    watched: ClassVar = ("loss/value", "grad/norm", "dqn/reward", "dqn/value")
    highlights: ClassVar = QReplayAlgorithm.highlights_of("dqn")

    @classmethod
    def build_agent(cls, config: Config, spec: EnvSpec) -> QAgent:
        agent = cls.q_agent(config, spec)
        if config.network.core != "none":
            raise ConfigError(
                f"`network.core` (={config.network.core!r}) must be 'none': `algorithm` (={cls.name!r}) "
                "replays single steps, without a carry; for a recurrent network use `r2d2`"
            )
        return agent

    def gradient(self, learner: QState, batch: Transitions) -> tuple[Gradient, dict[str, Array], Array]:
        after = self.single_steps(batch.next_obs, batch.next_mask)
        online = self._q(learner, learner.policy.params, after) if self.section.double else None
        following = next_value(self._q(learner, learner.target, after), online)
        total, discount = n_step_return(batch.reward, batch.counts, learner.hyperparams.gamma)
        target = n_step_target(total, discount, batch.terminated, following)
        here = self.single_steps(batch.obs, batch.action_mask)

        def loss(params: PyTree) -> tuple[Array, tuple[dict[str, Array], Array]]:
            q = value_of(self._q(learner, params, here), batch.action)
            return self.squared_errors(q, target, batch)

        return self.mean_gradient(loss, learner.policy.params, batch.usable)

    def layers(self, learner: QState, batch: Transitions) -> list[tuple[str, Array]]:
        inputs = self.single_steps(batch.obs, batch.action_mask)
        return self.agent.network.layers(learner.policy.params, *inputs)

    def _q(self, learner: QState, params: PyTree, inputs: tuple[Any, ...]) -> Array:
        """float32[N, A]."""
        return self.agent.apply(dataclasses.replace(learner.policy, params=params), *inputs).q[0]
