"""Pictures among observations: their axes, by the shape alone, and their size."""

from __future__ import annotations

import math
from typing import Any

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
