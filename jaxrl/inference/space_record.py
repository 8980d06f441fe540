"""Spaces as JSON values, for readers without this package."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, Mixed, MultiDiscrete, Space

_MOST_BOUNDS = 4096  # that are listed; of more only the outermost


def describe(spec: EnvSpec) -> dict[str, Any]:
    """`{"observation": ..., "action": ..., "action_mask": choices or None}`.

    An array has `type` (box, discrete, multi_discrete), `shape` and `dtype`, and `low` and `high` (None for
    no bound), `n` or `nvec`, and `start` of integers that do not begin at 0. A `dict` has its `spaces`; an
    action of several parts is `mixed`, with `parts` in the order of the policy's vector.
    """
    return {
        "observation": _space(spec.observation_space),
        "action": _space(spec.action_space),
        "action_mask": spec.mask_size if spec.has_action_mask else None,
    }


def _space(space: Space) -> dict[str, Any]:
    if isinstance(space, Dict):
        return {"type": "dict", "spaces": {name: _space(part) for name, part in space.spaces}}
    array = {"shape": list(space.shape), "dtype": str(np.dtype(space.dtype))}
    if isinstance(space, Mixed):
        return {"type": "mixed", **array, "parts": {name: _space(part) for name, part in space.spaces}}
    if isinstance(space, Discrete):
        return {"type": "discrete", **array, "n": int(space.n), **_start(space.start)}
    if isinstance(space, MultiDiscrete):
        return {
            "type": "multi_discrete",
            **array,
            "nvec": [int(n) for n in space.nvec],
            **_start(space.start),
        }
    assert isinstance(space, Box)
    return {"type": "box", **array, "low": _bound(space.low, min), "high": _bound(space.high, max)}


def _start(first: int | tuple[int, ...]) -> dict[str, Any]:
    return {"start": np.array(first).tolist()} if first else {}


def _bound(values: tuple[float, ...], outermost: Any) -> Any:
    """A number for equal bounds or very many, else a list; None is no bound."""
    if len(set(values)) == 1 or len(values) > _MOST_BOUNDS:
        return _finite(outermost(values))
    return [_finite(x) for x in values]


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None
