"""Pictures: their axes and sizes, what one step of a video holds, and how observations are drawn."""

from __future__ import annotations

import colorsys
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from jaxrl.envs.spaces import Box, Dict, Space

_LARGEST_RATIO = 1.5  # of the sides of small pictures
_LEAST_SIDE = 5  # pixels; below it the axes cannot be identified
_MOST_COLOURS = 4  # channels of a frame in a stack
LARGE_IMAGE = 32  # pixels a side; a convolution then has a thousand rows for each image


def picture_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of a picture in the order height, width, channels; empty of what is no picture.

    Three axes are a picture: with the channels first if that axis is the shortest and the others are alike,
    else last. Four are a stack of frames that have few channels, first or last; the frames become channels.
    """
    if len(shape) == 3:
        return (1, 2, 0) if _are_sides(shape[1:], above=shape[0]) else (0, 1, 2)
    if len(shape) == 4 and shape[3] <= _MOST_COLOURS and _are_sides(shape[1:3], above=shape[3]):
        return 1, 2, 0, 3
    if len(shape) == 4 and shape[1] <= _MOST_COLOURS and _are_sides(shape[2:], above=shape[1]):
        return 2, 3, 0, 1
    return ()


def picture_shape(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(height, width, channels) of a picture; None of what is none."""
    if not (order := picture_order(shape)):
        return None
    height, width, *channels = (shape[axis] for axis in order)
    return height, width, math.prod(channels)


def channels_last(x: Any, shape: tuple[int, ...]) -> Any:
    """Pictures [..., *shape] as [..., height, width, channels]; of JAX or numpy."""
    order = picture_order(shape)
    if order == (0, 1, 2):
        return x
    leading = x.ndim - len(shape)
    moved = x.transpose(*range(leading), *(leading + axis for axis in order))
    return moved.reshape(*moved.shape[: leading + 2], -1)


def _are_sides(sides: tuple[int, ...], above: int) -> bool:
    """True if these are sides of a picture, longer than the axis `above`, rather than a board's planes."""
    alike = min(sides) >= LARGE_IMAGE or max(sides) <= _LARGEST_RATIO * min(sides)
    return alike and min(sides) >= max(_LEAST_SIDE, above + 1)


def is_large_image(shape: tuple[int, ...]) -> bool:
    """True if an observation of this shape is a large image: milliseconds of learning on CPU."""
    picture = picture_shape(shape)
    return picture is not None and min(picture[:2]) >= LARGE_IMAGE


def has_large_images(space: Space) -> bool:
    """True if any part of the space is a large image."""
    if isinstance(space, Dict):
        return any(has_large_images(part) for _, part in space.spaces)
    return isinstance(space, Box) and is_large_image(space.shape)


class CannotRender(Exception):
    """There is no picture of this environment. The message is one line with the reason."""


@dataclasses.dataclass(frozen=True)
class Shot:
    """One step, as videos show it."""

    obs: Any  # the observation to act on, as the policy sees it; of several agents with a leading A
    mask: Any  # bool[A], the allowed actions, or None; of several agents likewise
    picture: Callable[[], np.ndarray]  # draws it, uint8[height, width, 3]; only until the next action
    over: bool  # the episode has ended; no action is taken any more
    reward: float = 0.0  # of the action before, 0 at the first step; of several agents the sum
    fresh: np.ndarray | None = None  # bool[A] of several agents, whose recurrent state restarts with `obs`
    # What the environment reported of the action before; without missing values, empty for several agents.
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
    hues = [colorsys.hsv_to_rgb(i / max(planes, 1), 0.65, 1.0) for i in range(planes)]
    colours = np.round(255 * np.array([*hues, (0, 0, 0)]))
    present = obs > 0
    top = np.where(present.any(axis=-1), planes - 1 - np.argmax(present[..., ::-1], axis=-1), planes)
    return colours[top].astype(np.uint8)
