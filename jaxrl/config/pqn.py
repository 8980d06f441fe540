"""The section of PQN."""

from __future__ import annotations

import dataclasses

from jaxrl.config.fields import LARGEST_INT32, above, at_least, at_most, between, field
from jaxrl.config.minibatches import MOST_EPOCHS, MinibatchConfig


@dataclasses.dataclass(frozen=True)
class PQNConfig(MinibatchConfig):
    """PQN (Gallici et al. 2024): Q-learning from rollouts, without replay."""

    rollout_length: int = field(
        32, at_least(1), at_most(LARGEST_INT32), help="time steps of one rollout", fixed=True
    )
    num_epochs: int = field(2, at_least(1), at_most(MOST_EPOCHS), help="passes over each rollout")
    learning_rate: float = field(5e-4, at_least(0), help="peak learning rate of Adam")
    max_grad_norm: float = field(10.0, above(0), help="the gradient is scaled down to this norm")
    gamma: float = field(0.99, between(0, 1), help="discount factor")
    q_lambda: float = field(
        0.65, between(0, 1), help="lambda of Q(lambda) targets; 0: one step, 1: the whole rollout"
    )
    exploration_start: float = field(
        1.0, between(0, 1), help="share of random actions at the start (epsilon)"
    )
    exploration_end: float = field(0.05, between(0, 1), help="share of random actions at the end")
    exploration_fraction: float = field(
        0.1, between(0, 1), help="share of the run in which epsilon falls from start to end"
    )
    dueling: bool = field(
        False, help="a value and advantages instead of Q-values (Wang et al. 2016)", fixed=True
    )
