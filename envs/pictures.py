"""Pictures of environments: what one step of a video holds, and how observations are drawn."""

from __future__ import annotations

import colorsys
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from jaxrl.envs.base import Box, Dict, Space
from jaxrl.envs.picture_shapes import channels_last, picture_order, picture_shape


class CannotRender(Exception):
    """There is no picture of this environment. The message is one line with the reason."""


@dataclasses.dataclass(frozen=True)
class Shot:
    """One step, as videos show it.

    Attributes:
      obs: the observation to act on, as the policy sees it; of several agents with a leading A.
      mask: bool[A], the allowed actions, or None; of several agents likewise.
      picture: draws it, uint8[height, width, 3]; only until the next action.
      over: the episode has ended; no action is taken any more.
      reward: of the action before, as episodes report it; 0 at the first step. Of several agents the sum.
      fresh: bool[A] of several agents, whose recurrent state restarts with `obs`; None of one.
      reports: what the environment reported of the action before, by name; without missing values, and
        empty for several agents.
    """

    obs: Any
    mask: Any
    picture: Callable[[], np.ndarray]
    over: bool
    reward: float = 0.0
    fresh: np.ndarray | None = None
    reports: Mapping[str, float] = dataclasses.field(default_factory=dict)


def reports_of(info: Mapping[str, Any], names: Iterable[str]) -> dict[str, float]:
    """The numbers of `info` by these names; one that is NaN, or absent, was not reported."""
    found = {name: float(info[name]) for name in names if name in info}
    return {name: x for name, x in found.items() if not math.isnan(x)}


def image_of(space: Space) -> bool:
    """True if observations are pictures, see `picture_order`."""
    return isinstance(space, Box) and picture_shape(space.shape) is not None


def layout_notes(space: Space, name: str = "observations") -> Iterator[str]:
    """A line for each part of observations that is a picture with channels or frames first."""
    if isinstance(space, Dict):
        for key, part in space.spaces:
            yield from layout_notes(part, f"{name} {key}")
    elif isinstance(space, Box) and picture_order(space.shape) not in ((), (0, 1, 2)):
        first = "channels" if len(space.shape) == 3 else "frames"
        picture = list(picture_shape(space.shape) or ())
        yield f"{name} {list(space.shape)} have their {first} first: convolutions read them as {picture}"


def draw(obs: np.ndarray, space: Space) -> np.ndarray:
    """uint8[height, width, 3] of an observation of `space` that is a picture.

    Bytes of more than two values are taken for grey or RGB, bright where they reach the bound of the space,
    of several grey frames the last; anything else for planes of objects, with a colour each.
    """
    obs = channels_last(obs, space.shape) if isinstance(space, Box) else obs
    largest = max(space.high) if isinstance(space, Box) else 255
    if obs.dtype == np.uint8 and largest > 1:
        if largest < 255:
            obs = np.round(obs * (255 / largest)).clip(0, 255).astype(np.uint8)
        channels = obs.shape[-1]
        return obs[..., -3:] if channels % 3 == 0 else np.repeat(obs[..., -1:], 3, axis=-1)
    planes = obs.shape[-1]
    colours = np.array([_colour(i / max(planes, 1)) for i in range(planes)] + [(0, 0, 0)])
    present = obs > 0
    top = np.where(present.any(axis=-1), planes - 1 - np.argmax(present[..., ::-1], axis=-1), planes)
    return colours[top].astype(np.uint8)


def _colour(hue: float) -> tuple[int, int, int]:
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.65, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)
