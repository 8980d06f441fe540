"""Run folders as a trainer leaves them, through its own writers, without training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrl.config import default_config, resolve
from jaxrl.reporting.writers import JsonlWriter
from jaxrl.runs.folder import RunFolder

STEPS = 1000  # between evaluations


def write_run(
    folder: Path,
    returns: Sequence[float],
    seed: int = 0,
    *,
    rate: float = 1e-3,
    env: str = "gymnax:CartPole-v1",
    finished: bool = True,
    pace: int = 5000,
    evaluated_once: bool = False,
    **fields: Any,
) -> Path:
    """A run with an evaluation every `STEPS` steps that take a second each, or a single one at its end."""
    config = default_config()
    config.seed, config.ppo.learning_rate, config.env.name = seed, rate, env
    config.env.num_envs, config.ppo.rollout_length = 10, 10
    config.ppo.num_minibatches = 1
    config.stop.steps = STEPS * len(returns)
    for name, value in fields.items():  # `section__field`
        section, _, field = name.partition("__")
        config[section][field] = value
    run = RunFolder(str(folder))
    run.create()
    run.write_config(resolve(config, 1))
    writer = JsonlWriter(folder / "metrics.jsonl")
    for number, value in enumerate(returns, start=1):
        step, seconds = STEPS * number, {"time/seconds": 30.0 + number, "time/budget_seconds": float(number)}
        machine = {"host/peak_memory_bytes": 2e8, "time/steps_per_second": float(pace)}
        writer.write(step, {"episode/return": value / 2, **machine, **seconds})
        if not evaluated_once or number == len(returns):
            writer.write(step, {"eval/return": value, **seconds})
    writer.close()
    if finished:
        summary: dict[str, Any] = {
            "steps": STEPS * len(returns),
            "stop_reason": "steps",
            "steps_per_second": pace,
            "device": "1 x cpu",
            "peak_memory_bytes": {"host": 3 * 10**8, "device": None},
        }
        run.write_summary(summary)
    return folder
