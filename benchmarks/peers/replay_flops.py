"""Arithmetic of the works of training in `replay_peers.py`. Standard library only."""

from __future__ import annotations

import itertools


def flops_per_step(work: str) -> float | None:
    """Multiplications and additions of the matrix products for an environment step.

    As in `works.Work`: acting, and for each row that is learnt from in this step the forward passes, and
    backward passes of two products each. None for a work that is not described here.
    """
    if work == "sac":
        # For each of 256 rows the actor twice, once with gradients, and two critics three times, twice with
        # gradients; that of the actions needs one product of each layer.
        actor, critic = _products((3, 256, 256, 2)), _products((4, 256, 256, 1))
        return actor + 256 * ((1 + 3) * actor + 2 * (1 + 3 + 2) * critic)
    forward = {
        "minatar": 2 * 9 * 4 * 16 * 64 + _products((1024, 128, 3)),
        "r2d2": _products((4, 128), (256, 512), (128, 2)),
    }
    # Of a row, the forward passes of network and target, and the backward pass of one; R2D2's rows of burn-in
    # have none.
    learnt = {"minatar": 32 / 4 * 4, "r2d2": 32 / 64 * (20 * 2 + 40 * 4)}
    return forward[work] * (1 + learnt[work]) if work in forward else None


def _products(*layers: tuple[int, ...]) -> int:
    return 2 * sum(a * b for sizes in layers for a, b in itertools.pairwise(sizes))
