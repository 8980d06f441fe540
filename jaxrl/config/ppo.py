"""PPO's section of the configuration."""

from __future__ import annotations

import dataclasses

from jaxrl.config.fields import above, at_least, between, field
from jaxrl.config.minibatches import MinibatchConfig


@dataclasses.dataclass(frozen=True)
class PPOConfig(MinibatchConfig):
    """PPO (Schulman et al. 2017), on sequences where the network has memory."""

    gamma: float = field(0.99, between(0, 1), help="discount factor")
    gae_lambda: float = field(0.95, between(0, 1), help="lambda of generalised advantage estimation")
    clip_range: float = field(
        0.2, above(0), help="epsilon: the probability ratio is clipped to [1 - epsilon, 1 + epsilon]"
    )
    clip_value: bool = field(False, help="also clip how far a value moves, by clip_range")
    normalize_advantages: bool = field(
        True,
        help="scale the advantages of each rollout, on all devices, to mean 0 and deviation 1",
    )
    entropy_coef: float = field(0.01, at_least(0), help="weight of the entropy bonus")
    value_coef: float = field(0.5, at_least(0), help="weight of the value loss")
    auxiliary_loss: str = field(
        "",
        help="module:function of a loss of one's own that is added to PPO's (docs/tutorials/algorithm.md)",
        fixed=True,
        names_module=True,
    )
    target_kl: float | None = field(
        None, above(0), help="approximate KL divergence that ends the updates on a rollout; none: never"
    )
