"""Runs in a process of its own with 4 virtual CPU devices: two iterations of training with the LSTM kernels.

`python tests/parallel/multi_device/measure_kernel.py` prints as JSON, for the kernel of each platform, the
largest differences from training with the scan on one device, and how far the parameters moved at all.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np

import jaxrl
from jaxrl.config import resolve
from jaxrl.networks.kernels.lstm_kernel import interpret
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.training.trainer import Trainer


def train(recurrence: str, devices: int) -> tuple[Any, Any, list[dict[str, float]], bool]:
    """(parameters before, and after, metrics, whether the update runs a kernel)."""
    config = jaxrl.default_config()
    # Episodes of some tens of steps under a random policy, so that resets fall into every rollout.
    config.env.update(name="gymnax:CartPole-v1", num_envs=24)
    config.network.update(core="lstm", hidden_sizes=(8,), core_size=8, recurrence=recurrence)
    config.ppo.update(rollout_length=16, sequence_length=8, num_epochs=1, num_minibatches=2)
    config.ppo.update(gradient_accumulation=1, learning_rate=1e-2, schedule="constant")
    trainer = Trainer(resolve(config, devices))
    before = jax.device_get(trainer.state.learner.policy.params)
    metrics = [trainer.update(trainer.rollout()) for _ in range(2)]
    assert isinstance(trainer._runtime, DeviceRuntime)
    kernel = "pallas_call" in str(trainer._runtime.trace().jaxpr)
    return before, jax.device_get(trainer.state.learner.policy.params), metrics, kernel


def largest_difference(a: Any, b: Any) -> float:
    return max(
        float(np.abs(x - y).max()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def main() -> None:
    before, expected, scanned, _ = train("scan", 1)
    found = {}
    for platform in ("tpu", "gpu"):
        with interpret(platform):
            _, got, metrics, kernel = train("pallas", 4)
        found[platform] = {
            "kernel": kernel,
            "moved": largest_difference(expected, before),
            "parameters": largest_difference(got, expected),
            "metrics": max(
                abs(a[name] - b[name]) for a, b in zip(metrics, scanned, strict=True) for name in b
            ),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
