"""Compares ways of choosing mazes at equal steps of training: solve rates on average and in the worst levels.

  python benchmarks/level_methods.py run --out=runs/level_methods --seeds=3
  python benchmarks/level_methods.py table --out=runs/level_methods
  python benchmarks/level_methods.py speed

`run` trains and evaluates method after method for a seed, then for the next. What exists in --out is not
repeated, and with --seconds it ends in time: a run that is cut off goes on with the next call. `speed` trains
without and with replay by turns in one process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

METHODS = ("random", "plr", "robust_plr", "accel", "learnability")
# Rutherford et al. 2024: worst 10% of 10,000 levels after 3e8 steps.
PUBLISHED = {"random": 0.934, "plr": 0.813, "robust_plr": 0.526, "accel": 0.852, "learnability": 0.953}
# A small budget: as wide a batch as pays on two cores, and buffers that fill within a tenth of it.
NETWORK = {
    "env.num_envs": 128,
    "network.hidden_sizes": 64,
    "network.core_size": 64,
    "ppo.learning_rate": 1e-3,
}
LEVELS = {
    "levels.capacity": 1000,
    "levels.candidates": 300,
    "levels.kept": 75,
    "levels.episodes": 4,
    "levels.refresh_iterations": 15,
}
_SHARES = ("100", "10", "1")  # percent of the levels, the worst
_LEAST_SECONDS = 20


def main() -> None:
    """Does what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=["run", "table", "speed"])
    parser.add_argument("--out", type=Path, default=Path("runs/level_methods"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=float, default=1e6)
    parser.add_argument("--levels", type=int, default=2000, help="of an evaluation")
    parser.add_argument("--episodes", type=int, default=5, help="in each of these, twice")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which `run` ends")
    arguments = parser.parse_args()
    if arguments.task == "table":
        print(table(arguments.out))
    elif arguments.task == "speed":
        speed()
    else:
        run(arguments)


def run(arguments: argparse.Namespace) -> None:
    """Trains and evaluates what is missing, until the time is up."""
    end = time.monotonic() + arguments.seconds
    for seed in range(arguments.seeds):
        for method in METHODS:
            folder = arguments.out / f"{method}-{seed}"
            fields = {**NETWORK, **({} if method == "random" else {"curriculum.name": method, **LEVELS})}
            train = ["train", "ppo_maze", f"--seed={seed}", f"--steps={arguments.steps:g}"]
            train += [f"--config.{name}={value}" for name, value in fields.items()]
            train += ["--config.evaluate.every_steps=0", "--config.log.every_steps=100000"]
            evaluate = ["evaluate", f"--levels={arguments.levels}", f"--episodes={arguments.episodes}"]
            evaluate += ["--sample", "--cvar"]
            for command, is_done in (
                (train, lambda folder=folder: (folder / "summary.json").exists()),
                (evaluate, lambda folder=folder: bool(_evaluations(folder))),
            ):
                if not _do([*command, f"--workdir={folder}"], is_done, end):
                    return


def _do(command: list[str], is_done: Callable[[], bool], end: float) -> bool:
    """Runs a command of jaxrl unless that is done; False if there is no time left for the next."""
    if is_done():
        return True
    seconds = end - time.monotonic()
    if seconds < _LEAST_SECONDS:
        return False
    process = subprocess.Popen([sys.executable, "-m", "jaxrl", *command])
    try:
        code = process.wait(None if seconds == float("inf") else seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # training saves its state
        process.wait()
        return False
    if code:
        raise SystemExit(f"jaxrl {' '.join(command)} exited with {code}")
    return True


def table(out: Path) -> str:
    """The means over seeds, with their range, as a table of Markdown."""
    lines = [
        "| levels | seeds | mean | worst 10% | worst 1% | published, worst 10% |",
        "|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        found = [_evaluations(folder) for folder in sorted(out.glob(f"{method}-[0-9]*"))]
        worst = [json.loads(files[-1].read_text())["worst"] for files in found if files]
        if worst:
            cells = [_spread([rates[share] for rates in worst]) for share in _SHARES]
            lines.append(f"| {method} | {len(worst)} | {' | '.join(cells)} | {PUBLISHED[method]:.3f} |")
    return "\n".join(lines)


def _evaluations(folder: Path) -> list[Path]:
    return sorted((folder / "evaluations").glob("levels-*.json"))


def _spread(rates: list[float]) -> str:
    mean = statistics.mean(rates)
    return f"{mean:.3f}" + (f" ({min(rates):.3f} to {max(rates):.3f})" if len(rates) > 1 else "")


def speed(rounds: int = 6, iterations: int = 4) -> None:
    """Prints steps a second and CPU seconds for a million steps of each method, medians over the rounds."""
    import jax

    from jaxrl.config.files import load_config
    from jaxrl.reporting.writers import MultiWriter
    from jaxrl.training.trainer import Trainer

    trainers: dict[str, Any] = {}
    for method in ("random", "plr", "accel"):
        config = load_config("ppo_maze")
        fields = {**NETWORK, "network.hidden_sizes": (64,), "num_devices": 1}
        # A buffer of which so small a part is enough is replayed from at once.
        fields |= {"levels.capacity": LEVELS["levels.capacity"], "levels.fill": 0.02}
        config.update_from_flattened_dict(
            fields if method == "random" else {**fields, "curriculum.name": method}
        )
        trainers[method] = Trainer(config, writer=MultiWriter(()))

    def turn(trainer: Any) -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(iterations):
            trainer.update(trainer.rollout())
        jax.block_until_ready(trainer.state.learner.policy.params)
        return time.perf_counter() - wall, time.process_time() - cpu

    for trainer in trainers.values():
        turn(trainer)
        turn(trainer)
    measured: dict[str, list[tuple[float, float]]] = {method: [] for method in trainers}
    for _ in range(rounds):
        for method, trainer in trainers.items():
            measured[method].append(turn(trainer))
    for method, found in measured.items():
        steps = iterations * trainers[method].config.steps_per_iteration
        wall, cpu = (statistics.median(column) for column in zip(*found, strict=True))
        print(
            f"{method:<8} {steps / wall:10,.0f} steps/s {1e6 * cpu / steps:8.2f} CPU seconds a million steps"
        )


if __name__ == "__main__":
    main()
