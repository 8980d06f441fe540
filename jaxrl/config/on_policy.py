"""The sections of the algorithms that learn from rollouts: PPO, A2C and PQN."""

from __future__ import annotations

import dataclasses

from jaxrl.config.fields import LARGEST_INT32, above, at_least, between, bounds, field, one_of
from jaxrl.config.minibatches import MOST_EPOCHS, MinibatchConfig


@dataclasses.dataclass(frozen=True)
class PPOConfig(MinibatchConfig):
    """PPO (Schulman et al. 2017), on sequences if the network has memory."""

    gamma: float = field(0.99, between(0, 1), help="discount factor")
    gae_lambda: float = field(0.95, between(0, 1), help="lambda of generalised advantage estimation")
    clip_range: float = field(
        0.2, above(0), help="epsilon: the probability ratio is clipped to [1 - epsilon, 1 + epsilon]"
    )
    clip_value: bool = field(False, help="also clip how far a value moves, by clip_range")
    normalize_advantages: bool = field(
        True, help="scale the advantages of each rollout, on all devices, to mean 0 and deviation 1"
    )
    entropy_coef: float = field(0.01, at_least(0), help="weight of the entropy bonus")
    entropy_schedule: str = field(
        "constant",
        one_of("constant", "linear", "cosine"),
        help="the entropy weight over the run: constant, or falling to 0, so that the policy "
        "ends less random",
    )
    value_coef: float = field(0.5, at_least(0), help="weight of the value loss")
    auxiliary_loss: str = field(
        "",
        help="module:function of a custom loss that is added to PPO's (docs/tutorials/algorithm.md)",
        fixed=True,
        names_module=True,
    )
    teacher: str = field(
        "",
        help="a run folder, such as a clone's, whose policy regularises this one: teacher_coef times "
        "KL(teacher || policy) is added to the loss (Schmitt et al. 2018)",
        fixed=True,
    )
    teacher_coef: float = field(1.0, at_least(0), help="weight of that divergence at the start")
    teacher_fraction: float = field(
        0.5, between(0, 1), help="share of the run in which that weight falls linearly to 0"
    )
    value_warmup: int = field(
        0,
        *bounds(0, LARGEST_INT32),
        help="first iterations in which only the value function learns, for init_from a "
        "clone, which has none",
    )
    target_kl: float | None = field(
        None, above(0), help="approximate KL divergence that ends the updates on a rollout; none: never"
    )


@dataclasses.dataclass(frozen=True)
class A2CConfig(MinibatchConfig):
    """Advantage actor-critic (Mnih et al. 2016), a rollout in one update."""

    rollout_length: int = field(16, *bounds(1, LARGEST_INT32), help="time steps of one rollout", fixed=True)
    num_epochs: int = field(
        1, *bounds(1, MOST_EPOCHS), help="passes over each rollout; more than 1 is off-policy"
    )
    num_minibatches: int = field(
        1, *bounds(1, LARGEST_INT32), help="updates per epoch, each on other sequences"
    )
    learning_rate: float = field(1e-3, at_least(0), help="peak learning rate of Adam")
    gamma: float = field(0.99, between(0, 1), help="discount factor")
    gae_lambda: float = field(
        1.0, between(0, 1), help="lambda of generalised advantage estimation; 1: n-step returns"
    )
    normalize_advantages: bool = field(
        False, help="scale the advantages of each rollout, on all devices, to mean 0 and deviation 1"
    )
    entropy_coef: float = field(0.01, at_least(0), help="weight of the entropy bonus")
    value_coef: float = field(0.5, at_least(0), help="weight of the value loss")


@dataclasses.dataclass(frozen=True)
class PQNConfig(MinibatchConfig):
    """PQN (Gallici et al. 2024): Q-learning from rollouts, without replay."""

    rollout_length: int = field(32, *bounds(1, LARGEST_INT32), help="time steps of one rollout", fixed=True)
    num_epochs: int = field(2, *bounds(1, MOST_EPOCHS), help="passes over each rollout")
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
