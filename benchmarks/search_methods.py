"""Compares the methods of `jaxrl search` at equal time: how soon a trial reaches a target, and how good the
winner is.

  taskset -c 0 python benchmarks/search_methods.py run --out=runs/search_methods
  python benchmarks/search_methods.py table --out=runs/search_methods

Every search gets the same seconds of the same cores, start-up included, and is then interrupted. Its best
trial is trained again with five fresh seeds, as are the shipped settings ("shipped" in the table), for the
same number of steps. What exists in --out is not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SPACE = """\
ppo.learning_rate: {log: [1e-4, 3e-2]}
ppo.gamma: {uniform: [0.95, 0.999]}
ppo.gae_lambda: {uniform: [0.8, 1.0]}
ppo.clip_range: {uniform: [0.1, 0.4]}
ppo.entropy_coef: {log: [1e-4, 0.1]}
"""
_FRESH_SEEDS, _FIRST_FRESH_SEED = 5, 1000
_EVALUATIONS = 20  # in a trial; ASHA and PBT compare trials at these


@dataclass(frozen=True)
class Task:
    """A task to search: a config, the steps of a trial, and the greedy return that counts as reached."""

    config: str
    fields: tuple[str, ...]
    steps: int
    target: float

    def training(self) -> list[str]:
        """Arguments of a run or a trial."""
        return [
            self.config,
            *self.fields,
            f"--config.stop.steps={self.steps}",
            "--config.stop.return=none",
            f"--config.evaluate.every_steps={self.steps // _EVALUATIONS}",
            "--config.evaluate.episodes=32",
            "--config.evaluate.modes=greedy",
            "--config.checkpoint.every_steps=0",
            "--config.log.writers=jsonl",
        ]


TASKS = {
    "cartpole-hidden": Task("ppo", (), 100_000, 475.0),
    "acrobot": Task("ppo_mlp", ("--env=gymnax:Acrobot-v1",), 100_000, -90.0),
    "breakout": Task("ppo_minatar", ("--config.network.encoder=mlp",), 400_000, 10.0),
}
METHODS = {
    "random": ("--method=random", "--trials=10000"),
    "random-together": ("--method=random", "--trials=10000", "--population=8"),
    "tpe-asha": ("--method=optuna", "--pruner=asha", "--trials=10000"),
    "pareto": ("--method=pareto", "--trials=10000"),
    "pbt": ("--method=pbt", "--trials=8"),
}


def run(arguments: argparse.Namespace) -> None:
    """Runs every method on every task, repeat by repeat, so that each repeat compares all of them."""
    for repeat in range(arguments.repeats):
        for name in arguments.tasks:
            shipped(TASKS[name], Path(arguments.out) / name)
            for method in METHODS:
                folder = Path(arguments.out) / name / f"{method}-{repeat}"
                if not (folder / "result.json").exists():
                    search(TASKS[name], method, repeat, folder, arguments.seconds)


def shipped(task: Task, folder: Path) -> None:
    """Trains the shipped settings with the fresh seeds; the first process fills the compilation cache."""
    file = folder / "shipped.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        returns = fresh_returns(task, {}, folder / "shipped")
        file.write_text(json.dumps(returns) + "\n")
        print(f"{folder.name} shipped: {returns}", flush=True)


def search(task: Task, method: str, repeat: int, folder: Path, seconds: float) -> None:
    """One search, and its winner with fresh seeds; both go to result.json."""
    folder.mkdir(parents=True, exist_ok=True)
    space = folder / "space.yaml"
    space.write_text(
        SPACE + (f"stop.steps: {{log: [{task.steps // 8}, {task.steps}]}}\n" if method == "pareto" else "")
    )
    fields = task.training()
    if method == "pbt":  # It trains on until the time is over.
        often = f"--config.evaluate.every_steps={task.steps // _EVALUATIONS}"
        fields = [*fields, f"--config.stop.steps={100 * task.steps}", often]
    command = [sys.executable, "-m", "jaxrl", "search", *fields, f"--space={space}", *METHODS[method]]
    command += ["--verify=0", f"--seed={repeat}", f"--config.seed={repeat}", f"--workdir={folder / 'search'}"]
    began = time.time()
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            process.wait()
    result = measured(task, method, folder, began, seconds)
    result["fresh"] = fresh_returns(task, result["values"], folder / "fresh")
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{folder.parent.name} {folder.name}: {summary(result)}", flush=True)


def measured(task: Task, method: str, folder: Path, began: float, seconds: float) -> dict[str, Any]:
    """The result of the search within its seconds."""
    trials = {}
    for line in (folder / "search/trials.jsonl").read_text().splitlines():
        trial = json.loads(line)
        trials[trial["number"]] = trial
    reached, steps, best, values = math.inf, 0, -math.inf, dict[str, Any]()
    for number, trial in trials.items():
        rows = evaluations(folder / f"search/trials/{number:04d}", began + seconds)
        steps += int(max((row["step"] for row in rows), default=0))
        times = [row["time"] - began for row in rows if row["eval/return"] >= task.target]
        reached = min([reached, *times])
        # A trial that was interrupted has no score; members of a population train to the end of the time.
        score = (
            rows[-1]["eval/return"] if rows and (method == "pbt" or trial["state"] == "done") else -math.inf
        )
        if score > best:
            best, values = score, trial["values"]
            if method == "pbt":
                values = values | last_values(folder / "search", number)
    states = [trial["state"] for trial in trials.values()]
    return {
        "seconds_to_target": reached,
        "steps": steps,
        "trials": len(trials),
        "done": states.count("done"),
        "pruned": states.count("pruned"),
        "failed": states.count("failed"),
        "searched": best,
        "values": {name: value for name, value in values.items() if name != "stop.steps"},
    }


def evaluations(folder: Path, until: float) -> list[dict[str, float]]:
    """The evaluations of a run up to a time, in seconds since 1970."""
    file = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [row for row in rows if row.get("eval/return") is not None and row["time"] <= until]


def last_values(folder: Path, member: int) -> dict[str, float]:
    """The hyperparameters that a member of PBT had last, where it has copied any."""
    file = folder / "lineage.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    values = [line["values"] for line in lines if line["member"] == str(member)]
    return {f"ppo.{name}": value for name, value in values[-1].items()} if values else {}


def fresh_returns(task: Task, values: dict[str, Any], folder: Path) -> list[float]:
    """The last greedy return of each of five fresh seeds, trained from the start."""
    fields = [f"--config.{name}={value!r}" for name, value in values.items()]
    command = [sys.executable, "-m", "jaxrl", "train", *task.training(), *fields, f"--workdir={folder}"]
    command += [f"--config.population.seeds={_FRESH_SEEDS}", f"--config.seed={_FIRST_FRESH_SEED}"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return [
        evaluations(member, math.inf)[-1]["eval/return"] for member in sorted((folder / "members").iterdir())
    ]


def summary(result: dict[str, Any]) -> str:
    fresh = statistics.mean(result["fresh"])
    counts = f"{result['trials']} trials ({result['done']} done, {result['pruned']} pruned)"
    return (
        f"target after {result['seconds_to_target']:.0f} s; {counts}, {result['steps'] / 1e6:.2f} M steps; "
        f"searched {result['searched']:.1f}, fresh {fresh:.1f}"
    )


def table(arguments: argparse.Namespace) -> None:
    """Prints the table of docs/search.md."""
    print("| task | method | seconds to the target | trials | M steps | searched | with fresh seeds |")
    print("|---|---|---|---|---|---|---|")
    for name in arguments.tasks:
        folder = Path(arguments.out) / name
        returns = json.loads((folder / "shipped.json").read_text())
        print(f"| {name} | shipped | | | | | {statistics.mean(returns):.1f} |")
        for method in METHODS:
            results = [
                json.loads(file.read_text()) for file in sorted(folder.glob(f"{method}-[0-9]/result.json"))
            ]
            if results:
                print(f"| {name} | {method} | {' | '.join(columns(results))} |")


def columns(results: list[dict[str, Any]]) -> list[str]:
    """The repeats of a method on a task, side by side."""
    seconds = [r["seconds_to_target"] for r in results]
    return [
        ", ".join("not reached" if math.isinf(s) else f"{s:.0f}" for s in seconds),
        ", ".join(str(r["trials"]) for r in results),
        ", ".join(f"{r['steps'] / 1e6:.1f}" for r in results),
        ", ".join(f"{r['searched']:.1f}" for r in results),
        ", ".join(f"{statistics.mean(r['fresh']):.1f}" for r in results),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name, function in (("run", run), ("table", table)):
        command = commands.add_parser(name)
        command.add_argument("--out", required=True, help="a folder for the searches")
        command.add_argument("--seconds", type=float, default=75.0, help="of each search")
        command.add_argument("--repeats", type=int, default=3)
        command.add_argument("tasks", nargs="*", default=list(TASKS), help=" ".join(TASKS))
        command.set_defaults(function=function)
    arguments = parser.parse_args()
    if sorted(set(arguments.tasks) - set(TASKS)):
        parser.error(f"tasks are {', '.join(TASKS)}")
    arguments.function(arguments)


if __name__ == "__main__":
    main()
