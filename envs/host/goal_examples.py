"""The rewards that a Gymnasium environment gives for goals, by which rules of goals are checked.

A worker process runs this file, which imports nothing of this package, where it describes an environment.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_GOALS = ("achieved_goal", "desired_goal")
_EXAMPLES = 64  # steps


def goal_examples(env: Any) -> dict[str, np.ndarray] | None:
    """Steps of random actions in an environment with goals, and other pairs of its goals; None for others.

    `achieved` and `desired` [M, G], `reward` and `terminated` float32[M], NaN if nothing is known. Pairs
    that no step had come only from Gymnasium-Robotics' `compute_reward` and `compute_terminated`, if there
    are such methods. Resets the environment.
    """
    from gymnasium import spaces

    space = env.observation_space
    if not isinstance(space, spaces.Dict) or set(space.spaces) != {*_GOALS, "observation"}:
        return None
    if any(not isinstance(space[name], spaces.Box) or len(space[name].shape or ()) != 1 for name in _GOALS):
        return None
    env.action_space.seed(0)
    rows: list[tuple[Any, Any, float, float]] = []
    ended = True
    for i in range(_EXAMPLES):
        if ended:
            env.reset(seed=i)
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        achieved, desired = (np.array(obs[name]) for name in _GOALS)
        rows.append((achieved, desired, float(reward), float(terminated)))
        ended = bool(terminated or truncated)
    rewards, ends = (_method(env, name) for name in ("compute_reward", "compute_terminated"))
    places = [row[0] for row in rows]
    for desired in (*places, *np.random.default_rng(0).permutation(places)) if rewards else ():
        achieved = places[len(rows) % _EXAMPLES]
        end = float(ends(achieved, desired, {})) if ends else math.nan
        rows.append((achieved, desired, float(rewards(achieved, desired, {})), end))
    columns = [np.stack(column).astype(np.float32) for column in zip(*rows, strict=True)]
    return dict(zip(("achieved", "desired", "reward", "terminated"), columns, strict=True))


def _method(env: Any, name: str) -> Any:
    """A method of an environment or of its wrappers; None if there is none."""
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
