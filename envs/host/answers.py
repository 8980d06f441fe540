"""What environments on the host answer, checked; imports nothing of this package but `host.worker`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxrl.envs.host.worker import Problem

_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


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
    """The values that a method returned, which have to be so many."""
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
    """The reward as a number that float32 holds."""
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
