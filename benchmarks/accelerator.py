"""Measures training on whatever accelerator there is, in one command of under ten minutes.

  python benchmarks/accelerator.py --output=DIR
  python benchmarks/accelerator.py --output=DIR --purejaxrl=PATH --rejax    peers on the same work
  python benchmarks/accelerator.py --output=DIR --dry-run                   tiny cases, on the CPU

  --minutes=M        for everything (default: 10): cases for which no time is left are not run
  --limit=SECONDS    for one case, after which its process is ended (default: 90)
  --seconds=S        that the windows of a case take, after compilation and warm-up (default: 2)
  --only=A,B         cases whose names contain A or B; --list shows the names
  --peer-python=FILE the Python of the peers, with their packages and a jax for this accelerator
                     (default: this one)

CartPole and MinAtar's Breakout, PPO with 128 steps and 4 epochs: networks, numbers of environments,
precisions, and with and without command buffers. Each case is a process of its own, so that one that fails
or hangs costs one row. Writes DIR/accelerator.json (everything) and DIR/accelerator.md (the table for
docs/performance.md) after every case.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "accelerator"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import outcome
import page
from cases import (
    COMMAND_BUFFERS,
    EPOCHS,
    PEER_ITERATIONS,
    PRECISIONS,
    ROLLOUT_LENGTH,
    Case,
    cases,
    tiny_cases,
)
from works import WORKS

HERE = Path(__file__).resolve().parent
# A case that cannot even start in what is left of the time is not begun.
_LEAST_SECONDS = 20.0


class Session:
    """One command: its rows, written out after every case."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.folder = Path(arguments.output)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.started = time.monotonic()
        self.record: dict[str, Any] = {
            "command": shlex.join(["python", "benchmarks/accelerator.py", *sys.argv[1:]]),
            "date": datetime.date.today().isoformat(),
            "rows": [],
        }

    def run(self) -> None:
        self.record["machine"] = found = self._process(
            [str(HERE / "accelerator" / "measurement.py")], _probe(), {}
        )
        if "reason" in found:
            sys.exit(f"error: no device can be used: {found['reason']}")
        print(f"{found['devices']} x {found['device']} ({found['platform']})", flush=True)
        for case in self._cases(found["platform"]):
            print(f"{case.name}: ", end="", flush=True)
            row = {"name": case.name, "case": dataclasses.asdict(case), "result": self._result(case)}
            self.record["rows"].append(row)
            print(_summary(row["result"]), flush=True)
            self._write()

    def _cases(self, platform: str) -> list[Case]:
        arguments = self.arguments
        peers = (*(["purejaxrl"] if arguments.purejaxrl else []), *(["rejax"] if arguments.rejax else []))
        found = list(tiny_cases(peers) if arguments.dry_run else cases(platform, peers))
        return [case for case in found if not arguments.only or any(x in case.name for x in arguments.only)]

    def _result(self, case: Case) -> dict[str, Any]:
        if self._seconds_left() < _LEAST_SECONDS:
            return {"reason": f"not run: the {self.arguments.minutes:g} minutes were over"}
        tiny = self.arguments.dry_run
        environment = {"JAX_DEFAULT_MATMUL_PRECISION": PRECISIONS[case.precision]}
        if (buffers := COMMAND_BUFFERS[case.command_buffers]) is not None:
            flags = os.environ.get("XLA_FLAGS", "")
            environment["XLA_FLAGS"] = f"{flags} --xla_gpu_enable_command_buffer={buffers}".strip()
        if case.trainer == "jaxrl":
            task = {"job": "measure", "case": dataclasses.asdict(case), "tiny": tiny}
            task["seconds"] = 0.05 if tiny else self.arguments.seconds
            return self._process([str(HERE / "accelerator" / "measurement.py")], task, environment)
        runner = str(HERE / "peers" / f"{case.trainer}_runner.py")
        found = self._process([runner], self._peer_task(case), environment, self.arguments.peer_python)
        if "seconds" in found:
            found["steps_per_second"] = found["steps"] / found["seconds"]
            found["iteration_seconds"] = case.num_envs * ROLLOUT_LENGTH / found["steps_per_second"]
        return found

    def _peer_task(self, case: Case) -> dict[str, Any]:
        network = {"lstm-scan": "lstm"}.get(case.network, case.network)
        work = WORKS[f"{'minatar-' if case.env == 'breakout' else ''}{case.env}-{network}"]
        iterations = 1 if self.arguments.dry_run else PEER_ITERATIONS
        return {
            "job": "measure",
            "work": dataclasses.asdict(work),
            "num_envs": case.num_envs,
            "steps": iterations * case.num_envs * ROLLOUT_LENGTH,
            "rollout_length": ROLLOUT_LENGTH,
            "epochs": EPOCHS,
            "seed": 0,
            "path": str(Path(self.arguments.purejaxrl).resolve()) if self.arguments.purejaxrl else None,
        }

    def _process(
        self,
        script: list[str],
        task: dict[str, Any],
        environment: dict[str, str],
        python: str = sys.executable,
    ) -> dict[str, Any]:
        """The report of a task's process, or {"reason": why it reported nothing}."""
        paths = [str(HERE.parent), str(HERE / "accelerator"), str(HERE / "peers")]
        paths += [path for path in [os.environ.get("PYTHONPATH")] if path]
        everywhere = {"PYTHONPATH": os.pathsep.join(paths), "JAX_ENABLE_COMPILATION_CACHE": "false"}
        if self.arguments.dry_run:
            everywhere["JAX_PLATFORMS"] = "cpu"
        limit = min(self.arguments.limit, max(_LEAST_SECONDS, self._seconds_left()))
        process = subprocess.Popen(
            [python, *script, json.dumps(task)],
            env=os.environ | everywhere | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return {"reason": f"ended after {limit:.0f} s"}
        found = outcome.read(output)
        if process.returncode or found is None:
            lines = [line.strip() for line in output.splitlines() if line.strip()]
            last = lines[-1][:300] if lines else f"exit code {process.returncode}"
            return {"reason": last, "output": output[-10_000:]}
        return found

    def _seconds_left(self) -> float:
        return 60 * float(self.arguments.minutes) - (time.monotonic() - self.started)

    def _write(self) -> None:
        self.record["seconds"] = time.monotonic() - self.started
        (self.folder / "accelerator.json").write_text(json.dumps(self.record, indent=1) + "\n")
        (self.folder / "accelerator.md").write_text(page.markdown(self.record))


def _probe() -> dict[str, Any]:
    return {"job": "probe"}


def _summary(result: dict[str, Any]) -> str:
    if "steps_per_second" in result:
        return f"{result['steps_per_second'] / 1e6:.3g} M steps/s"
    return str(result.get("said") or f"no result: {result['reason']}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("--output", help=argparse.SUPPRESS)
    parser.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rejax", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--purejaxrl", metavar="PATH", help=argparse.SUPPRESS)
    parser.add_argument("--peer-python", default=sys.executable, help=argparse.SUPPRESS)
    parser.add_argument("--only", type=lambda text: text.split(","), help=argparse.SUPPRESS)
    for name, default in (("minutes", 10.0), ("limit", 90.0), ("seconds", 2.0)):
        parser.add_argument(f"--{name}", type=float, default=default, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.list:
        for case in tiny_cases(()) if arguments.dry_run else cases("gpu", ("purejaxrl", "rejax")):
            print(case.name)
        raise SystemExit(0)
    if not arguments.output:
        parser.error("--output=DIR is missing")
    return arguments


if __name__ == "__main__":
    Session(_parse()).run()
