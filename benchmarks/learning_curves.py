"""Trains configs over seeds, evaluates them, draws learning curves and prints the table of docs/results.md.

  python benchmarks/learning_curves.py train --runs=runs/results --seeds=3 ppo ppo_mlp
  python benchmarks/learning_curves.py train --runs=runs/results --seeds=3 --episodes=200 \
      --config.stop.steps=1e7 ppo_minatar ppo_minatar:gymnax:Asterix-MinAtar
  python benchmarks/learning_curves.py draw --runs=runs/results --out=docs/img
  python benchmarks/learning_curves.py draw --runs=runs/hosts --out=docs/img --together=host_curves.png
  python benchmarks/learning_curves.py single --out=docs/img/host_images.png runs/pong runs/coinrun
  python benchmarks/learning_curves.py categories --out=docs/img/platformer_categories.png runs/by_category

An experiment is a config's name, `config:environment`, or `auto:environment`, which `jaxrl train --env`
trains with the config and the settings that it takes by itself. Completed runs are not repeated. After
training, `jaxrl evaluate` plays new episodes with the last checkpoint for the returns in the table.
Fields such as --config.stop.steps=1e7 go to every run.
With --jobs=N, N runs share the machine, one device each; otherwise each run has the whole machine. `single`
draws training and evaluation of single runs side by side; `categories` draws what a suite said during a run
(`evaluate.suite`), and prints the last of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def train(arguments: argparse.Namespace) -> None:
    """Runs every experiment with every seed, `arguments.jobs` at a time."""
    runs = [(experiment, seed) for experiment in arguments.experiments for seed in range(arguments.seeds)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda run: train_one(*run, arguments), runs))


def train_one(experiment: str, seed: int, arguments: argparse.Namespace) -> None:
    """Runs one process; its wall time, start-up included, goes to wall.json."""
    config, _, env = experiment.partition(":")
    folder = Path(arguments.runs) / experiment.replace(":", "-") / f"seed-{seed}"
    if (folder / "wall.json").exists():
        return
    python = [sys.executable, "-m"]
    if config == "auto":
        command = [*python, "jaxrl", "train", f"--env={env}"]
    else:
        command = [*python, "jaxrl.main", f"--config=configs/{config}.py"]
        command += [f"--config.env.name={env}"] if env else []
    command += [f"--workdir={folder}", f"--config.seed={seed}"]
    command += ["--config.num_devices=1"] if arguments.jobs > 1 else []
    command += arguments.fields
    start = time.monotonic()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    wall = {"seconds": time.monotonic() - start, "jobs": arguments.jobs}
    evaluation = [
        *python,
        "jaxrl",
        "evaluate",
        "--greedy",
        "--checkpoint=latest",
        f"--workdir={folder}",
        f"--episodes={arguments.episodes}",
    ]
    subprocess.run(evaluation, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (folder / "wall.json").write_text(json.dumps(wall) + "\n")
    print(f"{experiment} seed {seed}: {evaluated(folder)['mean']:.2f} in {wall['seconds']:.0f} s", flush=True)


def evaluated(folder: Path) -> dict[str, float]:
    """The evaluation with the most episodes."""
    results = [json.loads(file.read_text()) for file in (folder / "evaluations").glob("*-greedy-*.json")]
    return max(results, key=lambda result: result["episodes"])


def draw(arguments: argparse.Namespace) -> None:
    """Draws one picture per experiment and prints the table."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folders = sorted(path for path in Path(arguments.runs).iterdir() if path.is_dir())
    columns = len(folders) if len(folders) <= 4 else 3
    rows = -(-len(folders) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 3 * rows), squeeze=False)
    for ax in axes.flat[len(folders) :]:
        ax.set_axis_off()
    print(
        "| experiment | steps | greedy return: median [quartiles] | each seed | episodes "
        "| wall seconds | steps/s |"
    )
    print("|---|---|---|---|---|---|---|")
    for ax, folder in zip(axes.flat, folders, strict=False):
        seeds = sorted(path.parent for path in folder.glob("*/wall.json"))
        if not seeds:
            continue
        print(row(folder.name, seeds))
        draw_band(ax, seeds)
        ax.set_title(f"{folder.name}, {len(seeds)} seeds", fontsize=8)
        ax.set_xlabel("environment steps", fontsize=8)
        ax.set_ylabel("training return", fontsize=8)
        ax.tick_params(labelsize=7)
        ax.grid(alpha=0.3)
    figure.tight_layout()
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    figure.savefig(Path(arguments.out) / arguments.name, dpi=90)


def draw_together(arguments: argparse.Namespace) -> None:
    """Draws all experiments into one picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6, 3.6))
    for folder in sorted(path for path in Path(arguments.runs).iterdir() if path.is_dir()):
        seeds = sorted(folder.glob("seed-*"))
        draw_band(ax, seeds, label=f"{folder.name}, {len(seeds)} seeds")
    ax.set_xlabel("environment steps")
    ax.set_ylabel("training return")
    ax.legend(fontsize=8)
    ax.grid(alpha=0.3)
    figure.tight_layout()
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    figure.savefig(Path(arguments.out) / arguments.together, dpi=90)


def draw_band(ax: Any, seeds: Sequence[Path], label: str | None = None) -> None:
    """The median training return over seeds, and the band between its quartiles."""
    import numpy as np

    curves = [curve(seed / "metrics.jsonl") for seed in seeds]
    grid = np.linspace(max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves), 200)
    values = np.array([np.interp(grid, steps, returns) for steps, returns in curves])
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    (line,) = ax.plot(grid, middle, linewidth=1.2, label=label)
    ax.fill_between(grid, low, high, alpha=0.25, linewidth=0, color=line.get_color())


def draw_single(arguments: argparse.Namespace) -> None:
    """Draws training and evaluations of single runs, one beside the other."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    count = len(arguments.folders)
    columns = count if count <= 4 else 3
    rows = -(-count // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4.6 * columns, 3.2 * rows), squeeze=False)
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    names = {"eval/return": "evaluation", "eval/unseen_return": "the same, unseen levels"}
    for ax, folder in zip(axes.flat, map(Path, arguments.folders), strict=False):
        ax.plot(*curve(folder / "metrics.jsonl"), linewidth=1.2, label="training, sampled")
        for metric, label in names.items():
            steps, values = curve(folder / "metrics.jsonl", metric)
            if steps:
                ax.plot(steps, values, "o--", markersize=4, linewidth=0.8, label=label)
        ax.set_title(folder.name, fontsize=10)
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        ax.set_xlabel("environment steps")
        ax.set_ylabel("return")
        ax.legend(fontsize=8)
        ax.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(arguments.out, dpi=90)


def draw_categories(arguments: argparse.Namespace) -> None:
    """Draws what a run's suite measured during training, a line for each category."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    file = Path(arguments.folder) / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    played = [row for row in rows if any(key.startswith("eval/all/") for key in row)]
    if not played:
        raise SystemExit(f"{file} has no evaluation of a suite: set `evaluate.suite`")
    last = played[-1]
    parts = [key.split("/") for key in last]
    categories = [name[1] for name in parts if (name[0], name[-1]) == ("eval", "steps") and len(name) == 3]
    metrics = ("success_rate", "efficiency", "safety", "steps")
    print(f"| category | {' | '.join(metrics)} |\n|---|{'---|' * len(metrics)}")
    for name in categories:
        values = (last.get(f"eval/{name}/{metric}", float("nan")) for metric in metrics)
        print(f"| {name} | " + " | ".join(f"{x:.2f}" if x < 10 else f"{x:.1f}" for x in values) + " |")
    figure, axes = plt.subplots(1, len(metrics), figsize=(3.4 * len(metrics), 3), layout="constrained")
    for ax, metric in zip(axes, metrics, strict=True):
        for name in (name for name in categories if name != "all"):
            steps, values = curve(file, f"eval/{name}/{metric}")
            ax.plot(steps, values, linewidth=1.2, label=name)
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        ax.set_xlabel("environment steps", fontsize=8)
        ax.set_title(metric, fontsize=9)
        ax.tick_params(labelsize=7)
        ax.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(arguments.out, dpi=90)


def row(name: str, seeds: list[Path]) -> str:
    """One line of the table."""
    summaries = [json.loads((seed / "summary.json").read_text()) for seed in seeds]
    walls = [json.loads((seed / "wall.json").read_text()) for seed in seeds]
    results = [evaluated(seed) for seed in seeds]
    returns = [result["mean"] for result in results]
    each = ", ".join(f"{x:.1f}" for x in returns)
    shared = f" ({walls[0]['jobs']} runs at once)" if walls[0]["jobs"] > 1 else ""
    seconds = span([wall["seconds"] for wall in walls]) + shared
    rate = f"{statistics.median(s['steps_per_second'] for s in summaries):,.0f}"
    steps = span([s["steps"] for s in summaries])
    if len(returns) == 1:
        score = f"{returns[0]:.1f}"
    else:
        low, middle, high = statistics.quantiles(returns, n=4, method="inclusive")
        score = f"{middle:.1f} [{low:.1f}, {high:.1f}]"
    return f"| {name} | {steps} | {score} | {each} | {results[0]['episodes']} | {seconds} | {rate} |"


def span(values: list[float]) -> str:
    """`low-high`, or the one value."""
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low}-{high}"


def curve(path: Path, metric: str = "episode/return") -> tuple[list[int], list[float]]:
    """Steps and values of one run's metric."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    points = [(r["step"], r[metric]) for r in records if r.get(metric) is not None]
    return [step for step, _ in points], [value for _, value in points]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    jobs = parser.add_subparsers(required=True)
    training = jobs.add_parser("train")
    training.add_argument("experiments", nargs="+")
    training.add_argument("--runs", required=True)
    training.add_argument("--seeds", type=int, default=3)
    training.add_argument("--episodes", type=int, default=1000)
    training.add_argument("--jobs", type=int, default=1)
    training.set_defaults(job=train)
    drawing = jobs.add_parser("draw")
    drawing.add_argument("--runs", required=True)
    drawing.add_argument("--out", required=True)
    drawing.add_argument("--name", default="learning_curves.png", help="the picture")
    drawing.add_argument("--together", help="one picture of this name, with all experiments in it")
    drawing.set_defaults(job=lambda arguments: (draw_together if arguments.together else draw)(arguments))
    single = jobs.add_parser("single")
    single.add_argument("folders", nargs="+")
    single.add_argument("--out", required=True, help="the picture")
    single.set_defaults(job=draw_single)
    categories = jobs.add_parser("categories")
    categories.add_argument("folder")
    categories.add_argument("--out", required=True, help="the picture")
    categories.set_defaults(job=draw_categories)
    arguments, arguments.fields = parser.parse_known_args()
    if unknown := [
        x for x in arguments.fields if not x.startswith("--config.") or arguments.job is not train
    ]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    arguments.job(arguments)


if __name__ == "__main__":
    main()
