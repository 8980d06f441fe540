"""The one rule that says which part of an observation is which modality."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jaxrl.envs.base import Box, Dict, Space
from jaxrl.envs.graphs import GraphSpace
from jaxrl.envs.picture_shapes import picture_shape


@dataclass(frozen=True)
class Part:
    """A part of an observation.

    Attributes:
      modality: state, local, global or graph.
      key: its key in the observation; "" if that is no dict.
      space: its own.
    """

    modality: str
    key: str
    space: Space


def parts_of(space: Space) -> list[Part]:
    """The parts of an observation by key: graphs, pictures (local unless the key says global), and the state.

    A graph in rows, and any other dict in a dict, is none of these.
    """
    return [part for part in _parts(space) if part.modality]


def _parts(space: Space) -> Iterator[Part]:
    if isinstance(space, Dict) and not isinstance(space, GraphSpace):
        for key, part in space.spaces:
            yield Part(_modality(key, part), key, part)
    else:
        yield Part(_modality("", space), "", space)


def _modality(key: str, space: Space) -> str:
    if isinstance(space, GraphSpace):
        return "graph"
    if isinstance(space, Dict):
        return ""
    if isinstance(space, Box) and picture_shape(space.shape):
        return "global" if key == "global" else "local"
    return "state"
