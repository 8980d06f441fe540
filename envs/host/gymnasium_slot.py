"""Gymnasium environments in a worker process; imports only `worker` and `answers` of `host`."""

from __future__ import annotations

import importlib
import inspect
import math
from typing import Any

import numpy as np

from jaxrl.envs.host.answers import (
    MASK,
    MASKABLE,
    checked_flag,
    checked_mask,
    checked_reward,
    checked_tuple,
    choices_of,
    info_number,
    mask_in,
)
from jaxrl.envs.host.worker import Leaf, Problem, Reader, action_of, describe

_GOALS = ("achieved_goal", "desired_goal")
_EXAMPLES = 64  # steps


def make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """An environment that gymnasium has registered, or a class `module:Class`."""
    import gymnasium

    module, _, attribute = name.partition(":")
    if attribute and attribute not in gymnasium.registry:
        found = getattr(importlib.import_module(module), attribute, None)
        if isinstance(found, type):
            if issubclass(found, gymnasium.vector.VectorEnv):
                raise Problem("is a VectorEnv: name the class of a single one; jaxrl creates many")
            if not issubclass(found, gymnasium.Env):
                raise Problem("does not derive from gymnasium.Env")
            return found(**kwargs)
    spec = gymnasium.registry.get(attribute or name)
    if spec is not None and spec.entry_point is None and spec.vector_entry_point is not None:
        raise Problem("is registered as a VectorEnv alone: register a single environment as its entry_point")
    # This file does what gymnasium's checker does, at a fraction of its cost.
    return gymnasium.make(name, disable_env_checker=True, **kwargs)


def description(env: Any) -> dict[str, Any]:
    """The spaces of an environment and what its class declares. Resets the environment."""
    return {
        "obs": (obs := describe(env.observation_space)),
        "action": (action := describe(env.action_space)),
        "limit": None if env.spec is None else env.spec.max_episode_steps,
        "masks": masks_of(env, obs, action),
        "reports": (env.metadata or {}).get("reports", {}),
        "goals": goal_examples(env),
        "tasks": (env.metadata or {}).get("tasks"),
        "takes_options": "options" in inspect.signature(env.unwrapped.reset).parameters,
    }


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
    names = ("compute_reward", "compute_terminated")
    methods: list[Any] = [env.get_wrapper_attr(x) if env.has_wrapper_attr(x) else None for x in names]
    rewards, ends = methods
    places = [row[0] for row in rows]
    for desired in (*places, *np.random.default_rng(0).permutation(places)) if rewards else ():
        achieved = places[len(rows) % _EXAMPLES]
        end = float(ends(achieved, desired, {})) if ends else math.nan
        rows.append((achieved, desired, float(rewards(achieved, desired, {})), end))
    columns = [np.stack(column).astype(np.float32) for column in zip(*rows, strict=True)]
    return dict(zip(("achieved", "desired", "reward", "terminated"), columns, strict=True))


def valid_names(error: BaseException) -> list[str] | None:
    """The known environments, if `error` means that a name is not among them."""
    if type(error).__name__ not in ("NameNotFound", "NamespaceNotFound", "VersionNotFound"):
        return None
    import gymnasium

    return sorted(gymnasium.registry)


def masks_of(env: Any, obs: list[Leaf], action: list[Leaf]) -> str | None:
    """The way an environment gives action masks, or None.

    That is "method" (sb3-contrib's `action_masks()`), "obs" (a part of dict observations, as RLlib's and
    PettingZoo's have it), or "info". Resets the environment, for `info`.
    """
    has_method = env.has_wrapper_attr("action_masks") and callable(env.get_wrapper_attr("action_masks"))
    if not choices_of(action):
        if has_method:
            raise Problem(f"has action_masks(), and its actions are {env.action_space}: {MASKABLE} actions")
        return "obs" if mask_in(obs) else None
    if has_method:
        return "method"
    if mask_in(obs):
        return "obs"
    _, info = checked_tuple("reset", env.reset(seed=0), 2)
    return "info" if isinstance(info, dict) and MASK in info else None


def mask_of(env: Any, masks: str, obs: Any, info: Any, choices: list[int], ended: bool) -> np.ndarray:
    """bool[sum(choices)]: the actions that the environment allows now; see `checked_mask`."""
    if masks == "method":
        return checked_mask(env.get_wrapper_attr("action_masks")(), "action_masks()", choices, ended)
    given = obs if masks == "obs" else info
    mask = given.get(MASK) if isinstance(given, dict) else None
    return checked_mask(mask, f"{masks}[{MASK!r}]", choices, ended)


class GymnasiumSlot:
    """One environment and its rows of the shared arrays; resets on the step after an end."""

    def __init__(self, env: Any, index: int, setup: dict[str, Any], arrays: dict[str, np.ndarray]):
        self.env = env
        self.index = index
        self.steps = 0
        self._ended = True
        self._action_leaf = setup["action_leaf"]
        self._seed: int | None = setup["seeds"][index]
        cuts = setup["first_episode_steps"]
        self._first_episode_left = cuts[index] if cuts else 0
        leaves = enumerate(setup["obs_leaves"])
        self._readers = [Reader(leaf, arrays[f"obs{i}"][index : index + 1].squeeze(0)) for i, leaf in leaves]
        self._masks = setup["masks"]
        self._choices = choices_of([self._action_leaf])
        self._mask = arrays["mask"][index]
        self._outcome = arrays["outcome"][index]
        self._reward = arrays["reward"][index : index + 1]
        self._action = arrays["action"][index : index + 1].squeeze(0)
        self._info_keys = setup["info_keys"]
        self._info = arrays["info"][index]
        self._task_names = setup["task_names"]
        self._task = arrays["task"][index]

    def step(self) -> None:
        if self._ended:
            task = zip(self._task_names, self._task.tolist(), strict=True)
            options = {name: int(x) if x.is_integer() else x for name, x in task if not math.isnan(x)}
            asked = {"options": options} if options else {}  # Not every reset takes some.
            obs, info = checked_tuple("reset", self.env.reset(seed=self._seed, **asked), 2)
            self._seed = None
            self._ended = False
            reward, terminated, truncated = 0.0, False, False
            first = True
        else:
            self.steps += 1
            result = self.env.step(action_of(self._action_leaf, self._action))
            obs, reward, terminated, truncated, info = checked_tuple("step", result, 5)
            reward = checked_reward(reward)
            first = False
            terminated = checked_flag("terminated", terminated)
            truncated = checked_flag("truncated", truncated)
            if self._first_episode_left:
                truncated |= self._first_episode_left == 1 and not terminated
                self._first_episode_left = 0 if terminated or truncated else self._first_episode_left - 1
            self._ended = terminated or truncated
        for reader in self._readers:
            reader.read(obs)
        if self._masks:
            self._mask[:] = mask_of(self.env, self._masks, obs, info, self._choices, self._ended)
        elif isinstance(info, dict) and MASK in info:
            why = "which it did not when it was made" if self._choices else f"but {MASKABLE} actions"
            raise Problem(f"gives info[{MASK!r}], {why}")
        if self._info_keys:
            self._info[:] = [info_number(info, key) for key in self._info_keys]
        self._reward[0] = reward
        self._outcome[:] = terminated, truncated, first


make_slot = GymnasiumSlot
