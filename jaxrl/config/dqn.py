"""The section of DQN."""

from __future__ import annotations

import dataclasses

from jaxrl.config.fields import LARGEST_INT32, above, at_least, at_most, between, field, one_of
from jaxrl.config.replay import ReplayConfig


@dataclasses.dataclass(frozen=True)
class DQNConfig(ReplayConfig):
    """DQN (Mnih et al. 2015) with parts of Rainbow, each a field."""

    learning_rate: float = field(2.5e-4, at_least(0), help="peak learning rate of Adam")
    schedule: str = field(
        "constant",
        one_of("constant", "linear", "cosine"),
        help="the learning rate over the run: constant, or falling to 0",
    )
    max_grad_norm: float = field(10.0, above(0), help="the gradient is scaled down to this norm")
    double: bool = field(
        True, help="the network chooses the action, the target network values it (van Hasselt et al. 2016)"
    )
    dueling: bool = field(
        False, help="a value and advantages instead of Q-values (Wang et al. 2016)", fixed=True
    )
    target_period: int = field(
        50, at_least(1), at_most(LARGEST_INT32), help="updates between changes of the target network"
    )
    target_rate: float = field(
        1.0,
        between(0, 1),
        help="averaging rate of the target network at each change; 1: a copy; 0.005 with period 1: Polyak",
    )
    exploration: str = field(
        "linear",
        one_of("linear", "ladder"),
        help="linear: the share of random actions (epsilon) falls; ladder: each environment has its own "
        "(Horgan et al. 2018)",
    )
    exploration_start: float = field(1.0, between(0, 1), help="epsilon at the start; of the ladder, none")
    exploration_end: float = field(0.05, between(0, 1), help="epsilon at the end; of the ladder, none")
    exploration_fraction: float = field(
        0.5, between(0, 1), help="share of the updates in which epsilon falls from start to end"
    )
