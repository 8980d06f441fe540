"""Options that every configuration has, and which an algorithm must honour or refuse by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jaxrl.config import Config, ConfigError
from jaxrl.config.network import NetworkConfig
from jaxrl.config.sections import SAMPLED
from jaxrl.config.stages import parse

# By the name under which an algorithm offers it: whether a configuration asks for it.
OPTIONS: Mapping[str, Callable[[Config], bool]] = {
    "normalize.observations": lambda c: c.normalize.observations,
    "normalize.rewards": lambda c: c.normalize.rewards,
    "normalize.clip_rewards": lambda c: c.normalize.clip_rewards > 0,
    "nonfinite": lambda c: c.nonfinite == "skip",
    "network.separate_value": lambda c: c.network.separate_value,
    "network.central_value": lambda c: c.network.central_value,
    "network.frozen": lambda c: bool(c.network.frozen),
    "network.head": lambda c: c.network.head != "auto",
    "network.policy_gain": lambda c: c.network.policy_gain != NetworkConfig.policy_gain,
    "network.policy_std": lambda c: c.network.policy_std != NetworkConfig.policy_std,
    "host.overlap": lambda c: c.host.overlap is True,
    "evaluate.modes": lambda c: c.evaluate.modes == (SAMPLED,),
    "selfplay.enabled": lambda c: c.selfplay.enabled,
    "env.num_agents": lambda c: c.env.num_agents > 0,
    "curriculum.weights": lambda c: any(stage.weights for stage in parse(c.curriculum.stages)),
}
# The options that learning by epochs of minibatches honours, whatever the loss.
OF_MINIBATCHES = frozenset(
    (
        "normalize.observations",
        "normalize.rewards",
        "normalize.clip_rewards",
        "nonfinite",
        "network.frozen",
        "selfplay.enabled",
        "env.num_agents",
        "curriculum.weights",
    )
)
# The options of an agent that samples from a distribution and has a value function.
OF_ACTOR_CRITICS = frozenset(
    ("network.separate_value", "network.head", "network.policy_gain", "network.policy_std", "evaluate.modes")
)


def require_offered(config: Config, offers: frozenset[str]) -> None:
    """Raises ConfigError if a configuration asks for an option that its algorithm does not offer."""
    unknown = offers - OPTIONS.keys()
    assert not unknown, f"no such options: {', '.join(sorted(unknown))}"
    for name, is_asked in OPTIONS.items():
        if name not in offers and is_asked(config):
            raise ConfigError(f"`{name}` is not offered by `algorithm` (={config.algorithm!r})")
