"""Runs several exported policies as one with numpy alone; `jaxrl export` copies it beside numpy_policy.py.

    from numpy_ensemble import NumpyEnsemble

    policy = NumpyEnsemble(".")  # the folder with policy.json
    carry = policy.initial_carry(batch=1)

It is then called as `NumpyPolicy` is. policy.json names the `members`, and their `mean`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

# Beside this file, wherever that is.
_policies: Any = importlib.import_module(f"{__package__}.numpy_policy" if __package__ else "numpy_policy")

Array = Any


class NumpyEnsemble:
    """`(obs, carry, reset[, action_mask]) -> {"action", "value", "distribution", "carry"}` for B rows.

    Arguments as in `NumpyPolicy`; the carry has a tree for each member.
    """

    def __init__(self, folder: str | Path):
        self.description = _policies.read_description(folder)
        self.members = {name: _policies.NumpyPolicy(folder, name) for name in self.description["members"]}

    def initial_carry(self, batch: int) -> dict[str, Any]:
        return {name: member.initial_carry(batch) for name, member in self.members.items()}

    def __call__(
        self, obs: Any, carry: Any, reset: Array, action_mask: Array | None = None
    ) -> dict[str, Any]:
        found = {name: member(obs, carry[name], reset, action_mask) for name, member in self.members.items()}
        action, distribution = choose(found, self.description["mean"])
        return {
            "action": action,
            "value": np.mean([x["value"] for x in found.values()], axis=0),
            "distribution": distribution,
            "carry": {name: x["carry"] for name, x in found.items()},
        }


def choose(found: dict[str, Any], mean: dict[str, Any], xp: Any = np) -> tuple[Array, dict[str, Any]]:
    """(action, distribution) of what members returned, by their names; `mean` is as in policy.json.

    `xp` is the module of the arrays: numpy, or jax.numpy.
    """
    if mean["of"] == "actions":
        action = xp.mean(xp.stack([x["action"] for x in found.values()]), axis=0)
        return action, {name: x["distribution"] for name, x in found.items()}
    kind = "q" if mean["of"] == "q" else "logits"
    ends = np.cumsum(mean["sizes"])[:-1]
    each = [xp.split(x["distribution"][kind], ends, axis=-1) for x in found.values()]
    means = [
        xp.mean(xp.stack([x if kind == "q" else _log_softmax(x, xp) for x in part]), axis=0)
        for part in zip(*each, strict=True)
    ]
    best = [x.argmax(axis=-1).astype(np.int32) for x in means]
    action = xp.stack(best, axis=-1) if mean["is_vector"] else best[0]
    return _policies.in_own_numbers(action, mean), {kind: xp.concatenate(means, axis=-1)}


def _log_softmax(logits: Array, xp: Any) -> Array:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))
