"""Runs algorithms on one device and on two, in a process of its own that has two, and prints JSON.

`python -m tests.algorithms.measure_devices ALGORITHM...` says how far apart parameters and metrics are.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import numpy as np

from jaxrl.metrics.reduction import row
from jaxrl.parallel.sharding import Topology, to_host
from jaxrl.programs.device_runtime import DeviceRuntime
from tests.algorithms.tiny import ITERATIONS, duties_config


def trained(algorithm: str, devices: int) -> dict[str, Any]:
    runtime = DeviceRuntime(duties_config(algorithm, devices), Topology.of(devices))
    runtime.compile()
    state, interval, failed = runtime.advance(
        runtime.learning.initial_state(), runtime.learning.empty_interval(), ITERATIONS
    )
    assert not bool(failed)
    replicated = jax.tree.leaves(state.learner.policy.params)
    copies = [[np.asarray(shard.data) for shard in x.addressable_shards] for x in replicated]
    memory = {}
    if hasattr(state.memory, "rows"):
        rows = state.memory.rows
        rows = rows if isinstance(rows, dict) else vars(rows)
        counts = ("cursor", "count", "draws")
        memory = {
            "rows": to_host({name: rows[name] for name in ("action", "reset", "valid")}),
            "counts": to_host(
                [getattr(state.memory, name) for name in counts if hasattr(state.memory, name)]
            ),
            # The leaves of priorities.
            "tree": to_host(getattr(getattr(state.memory, "tree", None), "leaf", np.zeros(0))),
            # Of the fixture, which sums what learning tells it.
            "error": float(getattr(state.memory, "error", 0.0)),
        }
    return {
        "params": to_host(state.learner.policy.params),
        "metrics": row(interval.metrics),
        "memory": memory,
        "replicas_equal": all((x == each[0]).all() for each in copies for x in each),
    }


def _are_equal(one: np.ndarray, two: np.ndarray) -> bool:
    """Exactly, of facts; of priorities and of actions that a network computes up to the order of sums."""
    if np.issubdtype(one.dtype, np.floating):
        return bool(np.allclose(one, two, rtol=1e-4, atol=1e-5))
    return bool((one == two).all())


def compared(algorithm: str) -> dict[str, Any]:
    one, two = (trained(algorithm, devices) for devices in (1, 2))
    apart = jax.tree.map(lambda x, y: float(np.abs(x - y).max()), one["params"], two["params"])
    same = True
    if one["memory"]:
        equal = [
            jax.tree.map(_are_equal, one["memory"][name], two["memory"][name])
            for name in ("rows", "counts", "tree")
        ]
        same = all(jax.tree.leaves(equal))
    return {
        "params_apart": max(jax.tree.leaves(apart)),
        "metrics": [one["metrics"], two["metrics"]],
        "memory_equal": same,
        "error": [each["memory"].get("error", 0.0) for each in (one, two)],
        "replicas_equal": two["replicas_equal"],
    }


if __name__ == "__main__":
    print("FOUND" + json.dumps({algorithm: compared(algorithm) for algorithm in sys.argv[1:]}))
