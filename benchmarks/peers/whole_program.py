"""Times a trainer whose `train(key)` is one program over the whole budget, such as PureJaxRL's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import outcome


def counts(task: dict[str, Any]) -> dict[str, Any]:
    """The counts of a task by the names that PureJaxRL gave them, and others after it."""
    return {
        "NUM_ENVS": task["num_envs"],
        "NUM_STEPS": task["rollout_length"],
        "TOTAL_TIMESTEPS": outcome.rollout_steps(task),
        "NUM_MINIBATCHES": task["work"]["num_minibatches"],
    }


def measure(
    train: Callable[[Any], Any],
    first: Any,
    second: Any,
    *,
    steps: int,
    imported: float,
    versions: dict[str, str],
    members: int = 1,
) -> None:
    """Compiles, trains once with `first`, and reports the time of training with `second`.

    Args:
      train: returns a dict whose `runner_state` begins with a TrainState.
      first, second: keys, or an array of them for members under `vmap`.
      steps: that one member makes.
      imported: seconds that imports took.
      versions: of the packages.
      members: trained by the program.
    """
    start = time.perf_counter()
    program = jax.jit(train).lower(first).compile()
    compiled = time.perf_counter() - start
    out = jax.block_until_ready(program(first))
    parameters = sum(x.size for x in jax.tree.leaves(out["runner_state"][0].params)) // members
    del out
    start = time.perf_counter()
    jax.block_until_ready(program(second))
    outcome.report(
        import_seconds=imported,
        compile_seconds=compiled,
        steps=steps * members,
        seconds=time.perf_counter() - start,
        parameters=parameters,
        versions=versions,
    )
