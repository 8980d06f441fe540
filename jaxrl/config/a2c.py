"""The section of A2C."""

from __future__ import annotations

import dataclasses

from jaxrl.config.fields import LARGEST_INT32, at_least, at_most, between, field
from jaxrl.config.minibatches import MOST_EPOCHS, MinibatchConfig


@dataclasses.dataclass(frozen=True)
class A2CConfig(MinibatchConfig):
    """Advantage actor-critic (Mnih et al. 2016), a rollout in one update."""

    rollout_length: int = field(
        16, at_least(1), at_most(LARGEST_INT32), help="time steps of one rollout", fixed=True
    )
    num_epochs: int = field(
        1, at_least(1), at_most(MOST_EPOCHS), help="passes over each rollout; more than 1 is off-policy"
    )
    num_minibatches: int = field(
        1, at_least(1), at_most(LARGEST_INT32), help="updates per epoch, each on other sequences"
    )
    learning_rate: float = field(1e-3, at_least(0), help="peak learning rate of Adam")
    gamma: float = field(0.99, between(0, 1), help="discount factor")
    gae_lambda: float = field(
        1.0, between(0, 1), help="lambda of generalised advantage estimation; 1: n-step returns"
    )
    normalize_advantages: bool = field(
        False,
        help="scale the advantages of each rollout, on all devices, to mean 0 and deviation 1",
    )
    entropy_coef: float = field(0.01, at_least(0), help="weight of the entropy bonus")
    value_coef: float = field(0.5, at_least(0), help="weight of the value loss")
