"""Seconds from the start of a process to a score, with the settings that each trainer ships, cold and warm.

  python benchmarks/time_to_score.py --output=DIR --tasks=cartpole,pendulum --trainers=jaxrl --seeds=0,1,2
  python benchmarks/time_to_score.py --output=DIR --rejax=PATH --rejax-python=PYTHON --sbx-python=PYTHON
  python benchmarks/time_to_score.py --output=DIR --purejaxrl=PATH --purejaxrl-python=PYTHON

A score is the mean return of 64 greedy episodes, played every so many environment steps; a process
ends with the first evaluation that reaches it. Every second counts: imports, compilation, evaluations,
saving. Writes DIR/time_to_score.json (every sample) and .md (the table) after every process; a second command
with the same DIR adds to them. benchmarks/README.md has the rules.
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import outcome
import score_tables
from peers import hardware
from roster import HERE
from scores import EPISODES, LEFT_OUT, TASKS, TRAINERS, ScoreTask, ScoreTrainer, settings

ROOT = Path(__file__).resolve().parents[1]
STATES = ("cold", "warm")
_QUIET = 0.5  # seconds that other processes may take during one of ours, without a word
# Bytecode as an installed package has it, whatever this shell says.
_NEVER = ("PYTHONDONTWRITEBYTECODE", "JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")


class Session:
    """One command: its samples, written out after every process."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.folder = Path(given.output)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.record = _record(self.folder / "time_to_score.json")
        self.record["commands"].append(shlex.join(["python", "benchmarks/time_to_score.py", *sys.argv[1:]]))

    def run(self) -> None:
        for folder in ("jaxrl", "envs"):  # It follows no links.
            compileall.compile_dir(ROOT / folder, quiet=1)
        for task, trainer, seed in self._processes():
            if reason := self._missing(trainer, task):
                self._skip(trainer, task, reason)
                continue
            with tempfile.TemporaryDirectory() as cache:
                for state in STATES:
                    self._take(task, trainer, seed, state, cache)
                    self._write()
        self._write()

    def _processes(self) -> Iterator[tuple[ScoreTask, ScoreTrainer, int]]:
        """Trainers take turns: one seed of each, then the next."""
        for name in self.given.tasks:
            for seed in self.given.seeds:
                for trainer in self.given.trainers:
                    yield TASKS[name], TRAINERS[trainer], seed

    def _missing(self, trainer: ScoreTrainer, task: ScoreTask) -> str:
        """The reason why the trainer cannot take part; "" if it can."""
        if task.name not in trainer.ships:
            return "ships no settings for it"
        if trainer.needs and not self._path(trainer):
            return f"is on no package index with its settings: give --{trainer.needs}=PATH, a checkout of it"
        if trainer.python and not getattr(self.given, f"{trainer.python}_python"):
            return f"needs a Python of its own: give --{trainer.python}-python=PYTHON"
        return ""

    def _path(self, trainer: ScoreTrainer) -> Path | None:
        path = getattr(self.given, trainer.needs, None)
        return Path(path).resolve() if path else None

    def _skip(self, trainer: ScoreTrainer, task: ScoreTask, reason: str) -> None:
        line = {"trainer": trainer.name, "task": task.name, "reason": reason}
        if line not in self.record["skipped"]:
            self.record["skipped"].append(line)
            print(f"{task.name}, {trainer.name}: skipped: it {reason}", flush=True)

    def _take(self, task: ScoreTask, trainer: ScoreTrainer, seed: int, state: str, cache: str) -> None:
        """Runs one process and keeps its sample, or why there is none."""
        print(f"{task.name}, {trainer.name}, seed {seed}, {state}", end=": ", flush=True)
        kept = {"task": task.name, "trainer": trainer.name, "seed": seed, "cache": state}
        with tempfile.TemporaryDirectory() as workdir:
            command = self._command(task, trainer, seed, workdir)
            started, others = time.monotonic(), _busy_elsewhere()
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=_environment(cache),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                output, _ = process.communicate(timeout=self.given.limit)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                self._keep(kept | {"reached": False, "why": f"stopped after {self.given.limit:g} s"})
                return
            wall, others = time.monotonic() - started, _busy_elsewhere() - others
            found = _summary(workdir) if not trainer.runner else outcome.read(output)
        if process.returncode or found is None:
            lines = [line for line in output.splitlines() if line.strip()]
            why = f"failed: {lines[-1].strip()[:200] if lines else process.returncode}"
            self._keep(kept | {"reached": False, "why": why, "output": output[-5_000:]})
            return
        mean = found["eval_return"]
        reached = mean is not None and mean >= task.score
        why = "" if reached else f"its {found['steps']:,} steps were over"
        took = {"wall_seconds": wall, "other_cpu_seconds": others}
        self._keep(kept | found | took | {"reached": reached, "why": why})

    def _keep(self, sample: dict[str, Any]) -> None:
        same = ("task", "trainer", "seed", "cache")
        others = [x for x in self.record["samples"] if any(x[key] != sample[key] for key in same)]
        self.record["samples"] = [*others, sample]
        said = [f"{sample['wall_seconds']:.1f} s"] if "wall_seconds" in sample else []
        if (others := sample.get("other_cpu_seconds", 0.0)) > _QUIET:
            said.append(f"(others took {others:.1f} s of the processors)")
        print(*said, sample["why"], flush=True)

    def _command(self, task: ScoreTask, trainer: ScoreTrainer, seed: int, workdir: str) -> list[str]:
        if not trainer.runner:
            return [
                *(sys.executable, "-m", "jaxrl", "train", f"--env={task.ours}", f"--workdir={workdir}/run"),
                f"--config.stop.return={task.score}",
                "--config.evaluate.modes=greedy",
                f"--config.evaluate.episodes={EPISODES}",
                f"--config.evaluate.every_steps={task.evaluate_every}",
                f"--config.seed={seed}",
            ]
        path = self._path(trainer)
        job = {
            "env": task.env,
            "algorithm": trainer.algorithm,
            "settings": settings(trainer, task, path),
            "score": task.score,
            "evaluate_every": task.evaluate_every,
            "episodes": EPISODES,
            "seed": seed,
            "path": path and str(path),
        }
        python = getattr(self.given, f"{trainer.python}_python")
        return [python, str(HERE / trainer.runner), json.dumps(job)]

    def _write(self) -> None:
        path = self.folder / "time_to_score"
        path.with_suffix(".json").write_text(json.dumps(self.record, indent=1) + "\n")
        path.with_suffix(".md").write_text(score_tables.markdown(self.record, LEFT_OUT))


def _record(path: Path) -> dict[str, Any]:
    """The record in `path`, or an empty one."""
    if path.exists():
        return json.loads(path.read_text())
    return {
        "commands": [],
        "date": datetime.date.today().isoformat(),
        "hardware": hardware(),
        "samples": [],
        "skipped": [],
    }


def _busy_elsewhere() -> float:
    """Seconds that all processors have worked for other processes than our children; 0 where none says so."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    user, nice, system = (int(x) for x in path.read_text().split()[1:4])
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = (user + nice + system) / os.sysconf("SC_CLK_TCK")
    return busy - children.ru_utime - children.ru_stime


def _environment(cache: str) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _NEVER}
    return kept | {
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
    }


def _summary(workdir: str) -> dict[str, Any] | None:
    path = Path(workdir) / "run" / "summary.json"
    if not path.exists():
        return None
    summary = json.loads(path.read_text())
    return {key: summary[key] for key in ("steps", "compile_seconds", "eval_return", "versions")}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", required=True, help="folder for the JSON and the table")
    parser.add_argument("--tasks", type=some_of(TASKS), default=[*TASKS], help=f"some of {','.join(TASKS)}")
    parser.add_argument(
        "--trainers", type=some_of(TRAINERS), default=[*TRAINERS], help=f"some of {','.join(TRAINERS)}"
    )
    parser.add_argument("--seeds", type=_numbers, default=[0, 1, 2], help="0,1,2")
    parser.add_argument("--limit", type=float, default=300, help="seconds that one process may take")
    for name in dict.fromkeys(trainer.needs for trainer in TRAINERS.values() if trainer.needs):
        parser.add_argument(f"--{name}", metavar="PATH", help=f"a checkout of {name}")
    for name in dict.fromkeys(trainer.python for trainer in TRAINERS.values() if trainer.python):
        parser.add_argument(
            f"--{name}-python", metavar="PYTHON", help=f"with peers/requirements/{name}.txt installed"
        )
    given = parser.parse_args()
    for name in ("rejax", "purejaxrl"):
        path = getattr(given, name)
        if path and not Path(path).is_dir():
            parser.error(f"--{name}={path} is no folder")
    return given


def some_of(known: Mapping[str, Any]) -> Any:
    """Reads names with commas between, all of them known, for argparse."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


def _numbers(text: str) -> list[int]:
    try:
        return [int(x) for x in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers, such as 0,1,2") from None


if __name__ == "__main__":
    Session(_parse()).run()
