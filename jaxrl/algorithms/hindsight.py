"""The plan for a replay memory that exchanges goals, and its checks."""

from __future__ import annotations

from dataclasses import dataclass

from jaxrl.config import ConfigError, ReplayConfig
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.goals import Goals, NearGoals, check_goals, goals_of
from jaxrl.envs.modules import load_attribute


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


def hindsight_plan(section: str, fields: ReplayConfig, spec: EnvSpec, core: str) -> HindsightPlan | None:
    """The plan of a configuration; None if its strategy is "none".

    Args:
      section: its name in the configuration, for errors.
      fields: of that section.
      spec: of the environment.
      core: `network.core`.

    Raises:
      ConfigError: no goals can be exchanged, or stored carries would belong to the old ones.
    """
    strategy = fields.hindsight
    named = fields.hindsight_goals
    if strategy == "none":
        return None
    label = f"`{section}.hindsight` (={strategy!r})"
    if core != "none":
        raise ConfigError(
            f"{label} needs `network.core='none'`, not {core!r}: stored carries belong to the old goal"
        )
    if spec.goals is None and spec.goal_examples is None:
        raise ConfigError(
            f"{label} needs an environment with goals, whose rewards follow from them (docs/replay.md): "
            f"{spec.name!r}, with its wrappers, has none"
        )
    return HindsightPlan(strategy, fields.hindsight_k, _goals(f"`{section}.hindsight_goals`", named, spec))


def _goals(label: str, named: str, spec: EnvSpec) -> Goals:
    """The worth of goals: as the environment says, else as is named and agrees with its examples."""
    if spec.goals is not None:
        if named:
            raise ConfigError(
                f"{label} (={named!r}) must be empty: {spec.name!r} defines the rewards of its goals"
            )
        return spec.goals
    examples = spec.goal_examples
    assert examples is not None
    try:
        goals = goals_of(load_attribute(label, named)) if named else NearGoals()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    try:
        check_goals(goals, examples)
    except ValueError as error:
        rule = f"(={named!r})" if named else "(='', which is NearGoals())"
        raise ConfigError(
            f"{label} {rule} {error}; name a function of (achieved, desired), or goals such as NearGoals, in "
            "your own module (docs/replay.md)"
        ) from error
    return goals
