"""Trains POPGym's tasks, and puts their MMER beside that of the paper's GRU.

  python benchmarks/popgym_tasks.py run RepeatFirstEasy HigherLowerEasy --out=runs/popgym --steps=1e6 --jobs=2
  python benchmarks/popgym_tasks.py run RepeatPreviousEasy --out=runs/popgym --steps=5e5 --seeds=3
  python benchmarks/popgym_tasks.py table --out=runs/popgym
  python benchmarks/popgym_tasks.py discount RepeatPreviousEasy --steps=4e5

Each task is `jaxrl train --env=jaxrl:memory/TASK` with nothing else but the steps, the seeds and the interval
of the metrics; seeds are members of a population. With --jobs=2 two tasks train at a time, a core each. A run
that was cut off goes on with the same command. MMER is the maximum over training of the mean return of the
episodes that ended in one epoch, 65,536 steps as in the paper; the mean over seeds. `discount` trains a task
with two discounts and two learning rates, as one population.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

EPOCH = 65_536  # steps: 64 environments of 1,024, `train_batch_size` of popgym's baselines/ppo.py
# Morad et al. 2023, appendix B, table 3: mean and standard deviation of three trials of the GRU, 15 M steps.
GRU = {
    "AutoencodeEasy": (-0.283, 0.029),
    "CountRecallEasy": (0.177, 0.005),
    "HigherLowerEasy": (0.529, 0.002),
    "MultiarmedBanditEasy": (0.619, 0.007),
    "NoisyPositionOnlyCartPoleEasy": (0.995, 0.000),
    "PositionOnlyCartPoleEasy": (1.000, 0.000),
    "RepeatFirstEasy": (1.000, 0.000),
    "RepeatPreviousEasy": (1.000, 0.000),
}
DISCOUNTS, RATES = (0.99, 0.0), (1e-3, 4e-3)


def main() -> None:
    """Does what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", choices=["run", "table", "discount"])
    parser.add_argument("tasks", nargs="*", default=list(GRU))
    parser.add_argument("--out", type=Path, default=Path("runs/popgym"))
    parser.add_argument("--steps", type=float, default=15e6)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="tasks at a time")
    arguments, fields = parser.parse_known_args()
    if unknown := [x for x in fields if not x.startswith("--config.")]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if arguments.job == "table":
        print(table(arguments.out))
        return
    if arguments.job == "discount":
        for task in arguments.tasks:
            compare_discounts(task, arguments.steps)
        return
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda task: run(task, arguments, fields), arguments.tasks))


def run(task: str, arguments: argparse.Namespace, fields: Sequence[str]) -> None:
    """Trains, or continues, all seeds of one task."""
    folder, start = arguments.out / task, time.monotonic()
    command = [sys.executable, "-m", "jaxrl", "train", f"--env=jaxrl:memory/{task}", f"--workdir={folder}"]
    command += [f"--config.stop.steps={arguments.steps:.0f}", f"--config.log.every_steps={EPOCH}"]
    command += ["--config.evaluate.every_steps=0", "--config.log.writers=jsonl"]
    command += [f"--config.population.seeds={arguments.seeds}"] if arguments.seeds > 1 else []
    command += ["--config.num_devices=1"] if arguments.jobs > 1 else []
    subprocess.run([*command, *fields], check=True, stdout=subprocess.DEVNULL)
    print(f"{task}: {described(folder)} in {time.monotonic() - start:.0f} s", flush=True)


def compare_discounts(task: str, steps: float) -> None:
    """Prints the MMER of one seed for each discount and learning rate, all else as `--env` alone takes it."""
    import jax
    import jax.numpy as jnp

    import jaxrl
    from jaxrl.config.files import load_config
    from jaxrl.config.selection import known_environment

    name = f"jaxrl:memory/{task}"
    known = known_environment(name)
    config = load_config(known.config)
    config.update_from_flattened_dict({"env.name": name, "stop.steps": int(steps), **known.settings})
    gamma, rate = zip(*itertools.product(DISCOUNTS, RATES), strict=True)
    train = jaxrl.make_population(config)
    keys = jax.vmap(jax.random.key)(jnp.zeros(len(gamma), int))
    _, metrics = train(keys, jaxrl.hyperparameters(config, gamma=list(gamma), learning_rate=list(rate)))
    iterations = EPOCH // (config.env.num_envs * config.ppo.rollout_length)
    returns, counts = (np.asarray(metrics[x]) for x in ("episode/return", "episode/count"))
    for *given, returned, count in zip(gamma, rate, returns, counts, strict=True):
        found = epoch_means(returned, count, iterations)
        print(
            f"{task}: discount {given[0]:g}, learning rate {given[1]:g}: {np.nanmax(found):.3f}", flush=True
        )


def epoch_means(returns: np.ndarray, counts: np.ndarray, iterations: int) -> np.ndarray:
    """The mean return of the episodes of every so many iterations, from the means and counts of each."""
    whole = len(returns) // iterations * iterations
    sums = np.where(counts > 0, np.nan_to_num(returns) * counts, 0.0)[:whole].reshape(-1, iterations).sum(1)
    ended = counts[:whole].reshape(-1, iterations).sum(1)
    return np.where(ended > 0, sums / np.maximum(ended, 1), np.nan)


def mmer(rows: Sequence[dict[str, float]]) -> float:
    """The largest mean return of a row; one row is one epoch."""
    return max(row["episode/return"] for row in rows if row.get("episode/return") is not None)


def read(folder: Path) -> tuple[list[float], int]:
    """(the MMER of each seed, the steps of each) of a task's run folder."""
    seeds = sorted((folder / "members").glob("*")) or [folder]
    curves = [
        [json.loads(line) for line in (seed / "metrics.jsonl").read_text().splitlines()] for seed in seeds
    ]
    return [mmer(rows) for rows in curves], int(curves[0][-1]["step"])


def described(folder: Path) -> str:
    """`0.512 (0.510, 0.514)`."""
    found, _ = read(folder)
    each = f" ({', '.join(f'{x:.3f}' for x in found)})" if len(found) > 1 else ""
    return f"{statistics.mean(found):.3f}{each}"


def table(out: Path) -> str:
    """The tasks in the folder, as Markdown."""
    lines = ["| task | steps | MMER: mean (each seed) | GRU of the paper, 15 M steps |", "|---|---|---|---|"]
    for folder in sorted(x for x in out.iterdir() if (x / "metrics.jsonl").exists()):
        _, steps = read(folder)
        mean, deviation = GRU.get(folder.name, (None, None))
        theirs = "" if mean is None else f"{mean:.3f} ± {deviation:.3f}"
        lines.append(f"| `{folder.name}` | {steps:,} | {described(folder)} | {theirs} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
