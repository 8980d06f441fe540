"""The order of episodes in lanes: as environments lie side by side in a rollout."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxrl.algorithms.demonstrations import Demonstrated
from jaxrl.envs.base import EnvSpec, zeros
from jaxrl.envs.numbering import counted_from_zero
from jaxrl.experience.demonstrations.episode import Episode


def assign(lengths: Sequence[int], lanes: int) -> list[list[int]]:
    """The episodes of each lane, by number: the longest first, each into the lane with most room."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    heap = [(0, lane) for lane in range(lanes)]
    found: list[list[int]] = [[] for _ in range(lanes)]
    for i in order:
        filled, lane = heapq.heappop(heap)
        found[lane].append(i)
        heapq.heappush(heap, (filled + lengths[i], lane))
    return found


def rows_needed(lengths: Sequence[int], lanes: int) -> int:
    """Rows of the fullest lane."""
    return max((sum(lengths[i] for i in lane) for lane in assign(lengths, lanes)), default=0)


def lay_out(episodes: Sequence[Episode], spec: EnvSpec, lanes: int, rows: int) -> Demonstrated:
    """Arrays of numpy [rows, lanes, ...]; rows without an episode are zeros that are not `valid`.

    Args:
      episodes: of T steps each; their last observation is followed by no action and left out.
      spec: of their environment.
      lanes, rows: enough for all, see `rows_needed`.
    """
    empty = jax.device_get(zeros(spec.observation_space))
    obs = jax.tree.map(lambda x: np.zeros((rows, lanes, *x.shape), x.dtype), empty)
    reset, valid = np.zeros((2, rows, lanes), bool)
    space: Any = spec.action_space
    action = np.zeros((rows, lanes, *space.shape), space.dtype)
    mask = np.ones((rows, lanes, spec.mask_size), bool) if spec.has_action_mask else None
    for lane, chosen in enumerate(assign([len(e) for e in episodes], lanes)):
        at = 0
        for episode in (episodes[i] for i in chosen):
            here = slice(at, at + len(episode))

            def put(x: Any, y: Any, here: slice = here, lane: int = lane) -> None:
                x[here, lane] = y[: here.stop - here.start]

            jax.tree.map(put, obs, counted_from_zero(spec.observation_space, episode.observations))
            put(action, counted_from_zero(space, episode.actions))
            if mask is not None:
                put(mask, episode.action_masks)
            reset[at, lane] = valid[here, lane] = True
            at = here.stop
        if at < rows:
            reset[at, lane] = True
    on_host: dict[str, Any] = {
        "obs": obs,
        "reset": reset,
        "action": action,
        "action_mask": mask,
        "valid": valid,
    }
    return Demonstrated(**on_host)
