"""The plan for a replay memory that exchanges goals, and its checks."""

from __future__ import annotations

from dataclasses import dataclass

from jaxrl.config import ConfigError
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.goals import Goals


@dataclass(frozen=True)
class HindsightPlan:
    """Hindsight experience replay (Andrychowicz et al. 2017).

    Attributes:
      strategy: of `jaxrl.config.hindsight.STRATEGIES`, where the new goal comes from: "future", a later step
        of the episode; "final", its last; "episode", any of them; "random", any that is kept.
      k: rows with a new goal for each that keeps its own, on average.
      goals: of the environment.
    """

    strategy: str
    k: int
    goals: Goals


def hindsight_plan(section: str, strategy: str, k: int, spec: EnvSpec, core: str) -> HindsightPlan | None:
    """The plan of a configuration; None if its strategy is "none".

    Args:
      section: its name in the configuration, for errors.
      strategy: "none" or one of the strategies.
      k: see `HindsightPlan`.
      spec: of the environment.
      core: `network.core`.

    Raises:
      ConfigError: no goals can be exchanged, or stored carries would belong to the old ones.
    """
    if strategy == "none":
        return None
    label = f"`{section}.hindsight` (={strategy!r})"
    if core != "none":
        raise ConfigError(
            f"{label} needs `network.core='none'`, not {core!r}: stored carries belong to the old goal"
        )
    if spec.goals is None:
        raise ConfigError(
            f"{label} needs an environment with goals, whose rewards follow from them (docs/replay.md): "
            f"{spec.name!r}, with its wrappers, has none"
        )
    return HindsightPlan(strategy, k, spec.goals)
