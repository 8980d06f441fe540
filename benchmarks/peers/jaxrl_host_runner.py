"""This trainer on host environments: its own loop, timed over whole iterations."""

from __future__ import annotations

import outcome  # isort: skip

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import jax

from jaxrl.config import default_config, resolve, versions
from jaxrl.metrics.clock import Clock
from jaxrl.parallel.sharding import Topology
from jaxrl.training.assembly import build_runtime
from jaxrl.training.coordination import Coordinator
from jaxrl.training.device_count import choose_devices

IMPORTED = outcome.since_start()


def main(task: dict[str, Any]) -> None:
    work = task["work"]
    c = default_config()
    options = ", ".join(f"{name}={value!r}" for name, value in work["options"])
    c.env.update(name=f"envpool:{work['env']}({options})", num_envs=work["num_envs"], stagger=False)
    c.host.overlap, c.host.fused = task["overlap"], task["fused"]
    c.network.encoder, c.network.core = {
        "mlp": ("mlp", "none"),
        "nature": ("nature", "none"),
        "impala-lstm": ("impala", "lstm"),
    }[work["network"]]
    c.network.hidden_sizes = {"mlp": (64, 64), "nature": (512,), "impala-lstm": (256,)}[work["network"]]
    c.network.core_size = 256
    c.network.separate_value = work["network"] == "mlp"
    c.ppo.rollout_length, c.ppo.num_epochs = work["rollout_length"], work["epochs"]
    c.ppo.num_minibatches = work["num_minibatches"]
    c.ppo.sequence_length = 0 if c.network.core == "lstm" else 1  # the others shuffle single steps, too
    c.seed = task["seed"]
    config = resolve(c, choose_devices(c))
    clock = Clock()
    runtime = build_runtime(config, Topology.of(config.device_count), clock, Coordinator(clock))
    start = time.perf_counter()
    runtime.compile()
    state = runtime.prepare(runtime.learning.initial_state())
    compiled = time.perf_counter() - start

    def iterate(state: Any, count: int) -> Any:
        for _ in range(count):
            state, *_ = runtime.advance(state, runtime.learning.empty_interval(), 1)
            jax.block_until_ready(state)
        return state

    state = iterate(state, 1)
    runtime.time_shares()
    start = time.perf_counter()
    state = iterate(state, work["iterations"])
    seconds = time.perf_counter() - start
    shares = runtime.time_shares()
    runtime.close()
    outcome.report(
        import_seconds=IMPORTED,
        compile_seconds=compiled,
        steps=work["iterations"] * config.steps_per_iteration,
        seconds=seconds,
        shares=shares,
        parameters=sum(x.size for x in jax.tree.leaves(state.learner.policy.params)),
        versions=versions(),
    )


if __name__ == "__main__":
    main(outcome.task())
