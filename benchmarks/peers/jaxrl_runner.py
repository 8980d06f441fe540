"""This trainer: `Trainer.fit()` as a user runs it, timed between two of the rows that it logs."""

from __future__ import annotations

import outcome  # isort: skip

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
from ml_collections import ConfigDict
from works import WORKS

from jaxrl.config import default_config, resolve, versions
from jaxrl.population.make_population import make_population
from jaxrl.reporting.writers import Writer
from jaxrl.training.assembly import Assembly
from jaxrl.training.device_count import choose_devices
from jaxrl.training.trainer import Trainer

IMPORTED = outcome.since_start()
# Rows of the measured part; one before them is the warm-up.
_ROWS = 4


class _Rows(Writer):
    """When each row of training came, in environment steps and seconds."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []
        self.compile_seconds = 0.0

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        if "time/steps_per_second" in scalars:
            self.seen.append((step, time.perf_counter()))
            self.compile_seconds = scalars["time/compile_seconds"]


def _config(task: dict[str, Any]) -> ConfigDict:
    work, num_envs = task["work"], task["num_envs"]
    c = default_config()
    c.algorithm = work["algorithm"]
    c.env.name = work["env"] if ":" in work["env"] else f"gymnax:{work['env']}"
    c.env.num_envs = num_envs
    c.network.encoder = "minatar" if work["network"] == "cnn" else "mlp"
    c.network.core = WORKS[work["name"]].core
    # With the present one as many steps as memorax's attention sees.
    c.network.memory_length = task["rollout_length"] - 1
    c.network.hidden_sizes = tuple(work["hidden_sizes"])
    c.network.core_size = work["hidden_sizes"][-1]
    c.network.activation = work["activation"]
    learner = c[c.algorithm]
    learner.rollout_length = task["rollout_length"]
    learner.num_epochs = task["epochs"]
    learner.num_minibatches = work["num_minibatches"]
    if c.algorithm == "pqn":
        c.network.layer_norm = True
        learner.sequence_length = 1  # single steps are shuffled
    else:
        c.network.separate_value = work["network"] == "mlp" or work["network"].startswith("core:")
    c.evaluate.every_steps = c.checkpoint.every_steps = 0
    c.evaluate.episodes = 8
    return c


def measure(task: dict[str, Any]) -> None:
    c = _config(task)
    per_row = task["num_envs"] * task["rollout_length"]
    per_row *= outcome.iterations(task["steps"], _ROWS * per_row)
    c.log.every_steps = per_row
    c.stop.steps = (1 + _ROWS) * per_row

    rows = _Rows()
    config = resolve(c, choose_devices(c))
    assembly = Assembly.build(config)
    trainer = Trainer(config, writer=rows, assembly=assembly)
    parameters = sum(x.size for x in jax.tree.leaves(trainer.state.learner.policy.params))
    trainer.fit()
    (warm, start), (last, end) = rows.seen[0], rows.seen[-1]
    outcome.report(
        import_seconds=IMPORTED,
        compile_seconds=rows.compile_seconds,
        steps=last - warm,
        seconds=end - start,
        parameters=parameters,
        devices=assembly.topology.description,
        versions=versions(),
    )


def population(task: dict[str, Any]) -> None:
    """`jaxrl.make_population`: one program for all seeds, timed the second time it runs."""
    c = _config(task)
    c.stop.steps = outcome.rollout_steps(task)
    train = make_population(c)
    first, second = jax.random.split(jax.random.key(0), (2, task["members"]))
    start = time.perf_counter()
    states, _ = jax.block_until_ready(train(first))
    first_seconds = time.perf_counter() - start
    parameters = sum(x.size for x in jax.tree.leaves(states.learner.policy.params)) // task["members"]
    del states
    start = time.perf_counter()
    jax.block_until_ready(train(second))
    seconds = time.perf_counter() - start
    outcome.report(
        import_seconds=IMPORTED,
        compile_seconds=first_seconds - seconds,
        steps=c.stop.steps * task["members"],
        seconds=seconds,
        parameters=parameters,
        devices=f"{jax.device_count()} x cpu",
        versions=versions(),
    )


if __name__ == "__main__":
    given = outcome.task()
    {"measure": measure, "population": population}[given["job"]](given)
