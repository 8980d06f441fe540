"""Measures what several tasks in one policy cost beside each of them alone.

  python benchmarks/task_mixture.py

Trains by turns in one process: the mixture of `ppo_tasks`; each of its tasks alone with its share of the
environments; each alone with as many environments as the mixture; and each alone with those and the spaces
of all, which is the least that a mixture can cost with them. Prints steps a second of each, collecting and
learning apart, and the steps a second of the mixture over those of its parts, done one after the other.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

MIXTURE = "mixture"
SETTINGS = {
    "share": "alone, with its share of the environments",
    "all": "alone, with all environments",
    "padded": "alone, with all environments and the spaces of all",
}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn, about")
    parser.add_argument("--envs", type=int, default=96, help="of the mixture")
    arguments = parser.parse_args()
    trainers = build(arguments.envs)
    turns = {name: Turn(trainer, arguments.seconds) for name, trainer in trainers.items()}
    measured: dict[Any, list[tuple[float, float]]] = {name: [] for name in trainers}
    for _ in range(arguments.rounds):
        for name, turn in turns.items():
            measured[name].append(turn.measure())
    report({name: _columns(found, statistics.median) for name, found in measured.items()})


def build(num_envs: int) -> dict[Any, Any]:
    """Trainers of one device by name: `MIXTURE`, or (setting, task)."""
    from jaxrl.config.files import load_config
    from jaxrl.reporting.writers import MultiWriter
    from jaxrl.training.trainer import Trainer

    def trainer(**fields: Any) -> Any:
        config = load_config("ppo_tasks")
        changed = {"num_devices": 1} | {name.replace("__", "."): value for name, value in fields.items()}
        config.update_from_flattened_dict(changed)
        return Trainer(config, writer=MultiWriter(()))

    tasks = load_config("ppo_tasks").env.tasks
    found: dict[Any, Any] = {MIXTURE: trainer(env__num_envs=num_envs)}
    alone: dict[str, Any] = {"env__tasks": (), "network__encoder": "auto"}
    for task in tasks:
        short = task.partition(":")[2]
        share = num_envs // len(tasks)
        padded = f"jaxrl:Mixture(tasks={tasks!r}, only={short!r})"
        found["share", short] = trainer(env__name=task, env__num_envs=share, **alone)
        found["all", short] = trainer(env__name=task, env__num_envs=num_envs, **alone)
        found["padded", short] = trainer(env__name=padded, env__tasks=(), env__num_envs=num_envs)
    return found


class Turn:
    """A turn of training, of about so many seconds."""

    def __init__(self, trainer: Any, seconds: float):
        self._trainer, self._iterations = trainer, 1
        self.measure()
        collect, learn = self.measure()
        steps = trainer.config.steps_per_iteration
        self._iterations = max(1, round(seconds / (steps * (collect + learn))))

    def measure(self) -> tuple[float, float]:
        """Seconds a step of collecting and of learning."""
        import jax

        trainer, times = self._trainer, [0.0, 0.0]
        for _ in range(self._iterations):
            start = time.perf_counter()
            trajectory = jax.block_until_ready(trainer.rollout())
            middle = time.perf_counter()
            trainer.update(trajectory)
            jax.block_until_ready(trainer.state.learner.policy.params)
            times[0] += middle - start
            times[1] += time.perf_counter() - middle
        steps = self._iterations * trainer.config.steps_per_iteration
        return times[0] / steps, times[1] / steps


def report(seconds: dict[Any, list[float]]) -> None:
    """Prints the table of seconds a step, by trainer those of collecting and of learning."""
    print("| | steps/s | collecting, us a step | learning, us a step | mixture over this |")
    print("|---|---|---|---|---|")
    mixture = seconds.pop(MIXTURE)
    rows = {MIXTURE: mixture}
    for setting, label in SETTINGS.items():
        own = {task: parts for (kind, task), parts in seconds.items() if kind == setting}
        rows |= {f"{task} {label}": parts for task, parts in own.items()}
        rows[f"**all tasks, each {label}**"] = _columns(list(own.values()), statistics.mean)
    for name, (collect, learn) in rows.items():
        ratio = (collect + learn) / sum(mixture)
        cells = f"{1 / (collect + learn):,.0f} | {1e6 * collect:.2f} | {1e6 * learn:.2f} | {ratio:.2f}"
        print(f"| {name} | {cells} |")


def _columns(rows: Sequence[Sequence[float]], mean: Callable[[Sequence[float]], float]) -> list[float]:
    return [mean(column) for column in zip(*rows, strict=True)]


if __name__ == "__main__":
    main()
