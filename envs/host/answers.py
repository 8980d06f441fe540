"""What environments on the host answer, checked; imports nothing of this package but `host.worker`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl.envs.host.worker import Leaf, Problem

_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
MASK = "action_mask"  # in observations and infos
MASKABLE = "masks are for Discrete, MultiDiscrete and MultiBinary"


def info_number(info: Any, key: str) -> float:
    """The number that the environment gives under that key, NaN if it gives none."""
    said = info.get(key) if isinstance(info, dict) else None
    if said is None:
        return math.nan
    if not isinstance(said, (bool, int, float)) and (
        np.ndim(said) or np.asarray(said).dtype.kind not in "biuf"
    ):
        raise Problem(f"gave {type(said).__name__} as info[{key!r}], which is reported: a number is needed")
    return float(said)


def checked_tuple(method: str, result: Any, length: int, whose: str = "gymnasium") -> tuple[Any, ...]:
    if not isinstance(result, tuple) or len(result) != length:
        found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise Problem(f"{method}() returned {found} where {whose}'s has {length}")
    return result


def checked_flag(name: str, flag: Any) -> bool:
    """The end of an episode as a bool, from a bool or a number: text and None would pass for one."""
    if isinstance(flag, bool | np.bool_):
        return bool(flag)
    array = np.asarray(flag)
    if array.size != 1 or array.dtype.kind not in "biuf" or array != array:
        raise Problem(f"returned {flag!r} as {name}, which is no bool")
    return bool(array.item())


def checked_reward(reward: Any) -> float:
    if not isinstance(reward, float) and np.ndim(reward) != 0:
        raise Problem(f"returned a reward of shape {np.shape(reward)}, not a number")
    try:
        number = float(reward + 0)  # "1" is no number
    except (TypeError, ValueError) as error:
        raise Problem(f"returned the reward {reward!r}, which is no number") from error
    if not math.isfinite(number):
        raise Problem(f"returned the reward {number}")
    if abs(number) > _LARGEST_FLOAT32:
        raise Problem(f"returned the reward {number}, more than float32 can hold: scale or clip it")
    return number


def choices_of(action: Sequence[Leaf]) -> list[int]:
    """The number of choices of each component of an action with these parts; empty if it has no masks."""
    if len(action) != 1 or action[0]["path"] or action[0]["kind"] not in ("discrete", "multi_discrete"):
        return []
    (leaf,) = action
    return np.atleast_1d(np.asarray(leaf["high"]) - leaf["low"] + 1).tolist()


def mask_in(leaves: Sequence[Leaf]) -> bool:
    """True if a dict observation has a mask among its parts, as in PettingZoo and RLlib."""
    return any(leaf["path"] == (MASK,) for leaf in leaves)


def observed(leaves: list[Leaf], masked: bool, keys: Sequence[str]) -> list[Leaf]:
    """The parts of an observation that has a mask in it but the mask, if actions are `masked`.

    If they are not, the part is like any other: ValueError unless parts are requested, by `keys`.
    """
    if masked:
        return [leaf for leaf in leaves if leaf["path"] != (MASK,)] or leaves
    if keys:
        return leaves
    raise ValueError(
        f"observations hold {MASK!r}, but {MASKABLE} actions; name the parts to observe by keys=(...)"
    )


def checked_mask(given: Any, what: str, choices: Sequence[int], ended: bool) -> np.ndarray:
    """bool[sum(choices)]: the actions that the environment allows now.

    After an end no action follows, and some environments then allow none: everything is allowed there.

    Args:
      given: numbers 0 and 1 or bools: one array, or a list of one for each component.
      what: how the environment calls it.
      choices: of each component.
      ended: after the end of an episode.
    """
    size = sum(choices)
    if ended and given is None:
        return np.ones(size, bool)
    numbers = _numbers(given, choices)
    if numbers.shape != (size,) or numbers.dtype.kind not in "biuf":
        is_array = numbers.dtype.kind in "biuf"
        found = f"{numbers.dtype}{list(numbers.shape)}" if is_array else type(given).__name__
        raise Problem(f"gave {found} as {what}, its action space needs bool[{size}]")
    mask = numbers.astype(bool)
    if (wrong := numbers != mask).any():
        raise Problem(f"gave {numbers[wrong][0]:g} in {what}, which may hold 1 (allowed) and 0")
    allowed = np.logical_or.reduceat(mask, np.cumsum([0, *choices[:-1]]))
    if allowed.all():
        return mask
    if ended:
        return np.ones(size, bool)
    component = f" for component {np.argmin(allowed)}" if len(choices) > 1 else ""
    raise Problem(f"allows no action{component} by {what}")


def _numbers(given: Any, choices: Sequence[int]) -> np.ndarray:
    """The numbers of a mask, its components joined; of another type if there are none."""
    try:
        is_list = isinstance(given, list | tuple | np.ndarray) and len(given) == len(choices)
        if is_list and [np.shape(part) for part in given] == [(n,) for n in choices]:
            return np.concatenate(given)
        return np.asarray(given)
    except (TypeError, ValueError):  # rows of different lengths, or an array without any
        return np.asarray(None)
