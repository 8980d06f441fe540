"""The table of speed on CPUs, beside peers and beside an earlier build: row by row, resumed if it is cut off.

  python benchmarks/all_peers.py install
  python benchmarks/all_peers.py run --output=runs/all_peers --rounds=3 --purejaxrl=PATH --rejax=PATH \\
      --baselines=PATH --jaxmarl=PATH --earlier=PATH
  python benchmarks/all_peers.py run --output=runs/all_peers --rows=ppo-mlp-64,serve
  python benchmarks/all_peers.py table --output=runs/all_peers

`run` measures each row once a round, by the benchmark that has it: this build with its peer and, with
`--earlier`, a checkout of an earlier build alone, by the benchmarks of this one. Each result is a line of
OUTPUT/rows.jsonl; the same command measures what has none yet, also what failed. A row whose peer is not
installed is left out, with a line that says how to install it. `table` prints all results as Markdown. Ratios
say how many times better this build is: the median and range over rounds. The bound is the speed at which a
step takes no longer than its matrix products, at the rate of a large one, measured before each row; for
`serve` that of a server that does nothing. Run it on an otherwise idle machine; `taskset -c 0` before the
command leaves it one core.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import outcome
from all_rows import ROWS
from peers import hardware
from roster import PEERS, python_of
from rows import BOUND, CHECKOUTS, Figure, Job, Row
from tables import header, row
from time_to_score import some_of

ROOT = Path(__file__).resolve().parents[1]
BUILDS = ("this", "earlier")
# What tells results apart.
_CASE = ("row", "build", "round", "quick")
_ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
Line = Mapping[str, Any]


class Session:
    """One command `run`."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.output = given.output
        self.output.mkdir(parents=True, exist_ok=True)
        # No row measures compilation but `score`, whose processes have caches of their own.
        self.cache = {"JAX_COMPILATION_CACHE_DIR": str(self.output / "compiled")}
        self.roots = {"this": ROOT}
        if given.earlier:
            self.roots["earlier"] = beside(given.earlier, self.output / "earlier")

    def run(self) -> None:
        rows = [ROWS[name] for name in self.given.rows if not self._left_out(ROWS[name])]
        done = {tuple(line[key] for key in _CASE) for line in results(self.output)}
        # Round by round, so that one that is cut off has every row, and builds take turns.
        for count, each, build in itertools.product(range(self.given.rounds), rows, self.roots):
            if (each.name, build, count, self.given.quick) not in done:
                self._take(each, build, count)

    def _left_out(self, each: Row) -> bool:
        missing = each.missing(self.given)
        if missing:
            print(f"{each.name}: left out until you have run: {'; '.join(missing)}", flush=True)
        return bool(missing)

    def _take(self, each: Row, build: str, count: int) -> None:
        """Runs one benchmark and keeps its figures; if it fails, says why."""
        print(f"{each.name}, {build} build, round {count + 1} of {self.given.rounds}", end=": ", flush=True)
        folder = self.output / "raw" / f"{each.name}-{build}-{count}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        script, *arguments = each.command(Job(self.given, folder, count, alone=build != "this"))
        root, machine = self.roots[build], hardware() | {"matmul_flops": _matmul_flops()}
        started = time.monotonic()
        with (folder / "log.txt").open("w") as log:
            done = subprocess.run(
                [sys.executable, str(root / "benchmarks" / script), *arguments],
                cwd=root,
                env=os.environ | _ON_CPU | {"PYTHONPATH": str(root)} | self.cache,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        seconds = time.monotonic() - started
        try:
            if done.returncode:
                raise ValueError(f"exit code {done.returncode}")
            figures = each.read(folder)
            # The benchmarks keep a trainer that fails on their own record, and end well.
            trainers = 2 if each.needs and build == "this" else 1
            if lacking := [x.name for x in each.figures if len(figures.get(x.name, {})) < trainers]:
                raise ValueError(f"a trainer has no figure {lacking}")
        except (ValueError, KeyError, OSError) as error:
            print(f"failed: {error}; see {folder / 'log.txt'}", flush=True)
            return
        checkout = self.given.earlier if build == "earlier" else ROOT
        line = {
            **dict(zip(_CASE, (each.name, build, count, self.given.quick), strict=True)),
            "figures": figures,
            "command": [script, *arguments],
            "commit": outcome.commit(str(checkout)),
            "versions": self._versions(each),
            "machine": machine,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
            "seconds": round(seconds),
        }
        with (self.output / "rows.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{seconds:.0f} s", flush=True)

    def _versions(self, each: Row) -> dict[str, str | None]:
        ours = {
            name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy")
        }
        peers = {need.name: need.version(self.given) for need in each.needs}
        return {"python": platform.python_version(), **ours, **peers}


def _matmul_flops() -> float:
    """Of this machine at this time, per second."""
    command = [sys.executable, str(ROOT / "benchmarks/peers/floor.py"), "{}"]
    done = subprocess.run(command, env=os.environ | _ON_CPU, stdout=subprocess.PIPE, text=True, check=True)
    found = outcome.read(done.stdout)
    assert found is not None
    return float(found["matmul_flops"])


def beside(checkout: Path, folder: Path) -> Path:
    """A folder with the package of `checkout`, by links, and the benchmarks of this build."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in checkout.iterdir():
        if path.name != "benchmarks":
            (folder / path.name).symlink_to(path)
    shutil.copytree(ROOT / "benchmarks", folder / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def results(output: Path) -> list[Line]:
    """The lines of `rows.jsonl`; half a line, left by a command that was cut off, is removed."""
    path = output / "rows.jsonl"
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def table(lines: Iterable[Line]) -> str:
    """All results as Markdown: a line for each figure and each of the others that it was measured beside."""
    lines = list(lines)
    page = header("work|jaxrl|beside|its figure|ratio, median (range)|rounds|of the bound|aim")
    for name, each in ROWS.items():
        mine = [line for line in lines if line["row"] == name]
        for figure in each.figures:
            title = f"{each.title}, {figure.name}" if figure.name else each.title
            page += [
                row([title, *cells, bound(figure, mine), figure.aim]) for cells in compared(figure, mine)
            ]
    page += ["", *_circumstances(lines)]
    return "\n".join(page) + "\n"


def compared(figure: Figure, lines: Iterable[Line]) -> Iterator[list[str]]:
    """The cells of one figure, for each of the others."""
    found: dict[str, dict[int, float]] = {}  # by trainer, by round
    for line in lines:
        for trainer, value in line["figures"].get(figure.name, {}).items():
            if trainer != BOUND and (line["build"] == "this" or trainer == "jaxrl"):
                name = trainer if line["build"] == "this" else "the earlier build"
                found.setdefault(name, {})[line["round"]] = value
    ours = found.pop("jaxrl", {})
    if not found and ours:
        yield [_number(statistics.median(ours.values()), figure.unit), "", "", "", str(len(ours))]
    for other, values in found.items():
        both = sorted(ours.keys() & values.keys())
        if not both:
            continue
        ratios = [figure.ratio(ours[x], values[x]) for x in both]
        spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(both) > 1 else ""
        yield [
            _number(statistics.median(ours[x] for x in both), figure.unit),
            other,
            _number(statistics.median(values[x] for x in both), figure.unit),
            f"{statistics.median(ratios):.2f}{spread}",
            str(len(both)),
        ]


def bound(figure: Figure, lines: Iterable[Line]) -> str:
    """The share of its bound that jaxrl reaches, median over rounds; "" if none is known."""
    shares = []
    for line in lines:
        found = line["figures"].get(figure.name, {})
        rate = line["machine"].get("matmul_flops")  # results of before have none
        limit = rate / figure.flops if rate and figure.flops else found.get(BOUND)
        if line["build"] == "this" and limit:
            shares.append(found["jaxrl"] / limit)
    return f"{statistics.median(shares):.0%}" if shares else ""


def _number(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _circumstances(lines: list[Line]) -> list[str]:
    """Machines, dates, loads, builds and versions of all lines, each once."""
    machines = {f"{x['machine']['cpu']}, {x['machine']['cores']} cores, {x['machine']['os']}" for x in lines}
    loads = sorted(float(x["machine"]["load"].split(",")[0]) for x in lines)
    dates = sorted(x["date"] for x in lines)
    found = [f"- Machine: {machine}." for machine in sorted(machines)]
    if lines:
        found.append(
            f"- From {dates[0]} to {dates[-1]}; load average when a row began {loads[0]} to {loads[-1]}."
        )
    for build in BUILDS:
        commits = sorted({x["commit"] for x in lines if x["build"] == build})
        found += [f"- {build.capitalize()} build: {', '.join(commits)}."] if commits else []
    missing = [name for name in ROWS if name not in {x["row"] for x in lines}]
    found += [f"- Not measured: {', '.join(missing)}."] if missing else []
    found += (
        ["- Short measurements, which only show that rows run."] if any(x["quick"] for x in lines) else []
    )
    versions = {f"- {name}: {version}." for x in lines for name, version in x["versions"].items()}
    return [*found, *sorted(versions)]


def _path(text: str) -> Path:
    """Benchmarks run in the folder of their build."""
    return Path(text).resolve()


def _folder(text: str) -> Path:
    path = _path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder")
    return path


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("command", choices=("install", "run", "table"))
    parser.add_argument(
        "--output", type=_path, default=_path("runs/all_peers"), help="folder for the results"
    )
    parser.add_argument("--rows", type=some_of(ROWS), default=[*ROWS], help=f"some of {','.join(ROWS)}")
    parser.add_argument("--rounds", type=int, default=3, help="results of each row")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the steps: only to see that rows run"
    )
    parser.add_argument(
        "--venvs", type=_path, default=cache / "jaxrl" / "peers", help="virtual environments of peers"
    )
    parser.add_argument("--earlier", type=_folder, metavar="PATH", help="a checkout of an earlier build")
    for option, repository in CHECKOUTS.items():
        parser.add_argument(f"--{option}", type=_folder, metavar="PATH", help=f"a checkout of {repository}")
    return parser.parse_args()


def main() -> None:
    given = _parse()
    if given.command == "install":
        for name in ("rejax", "purejaxrl", "jaxmarl", "memorax", "sbx"):
            python_of(PEERS[name], given.venvs)
    elif given.command == "run":
        Session(given).run()
    else:
        print(table(x for x in results(given.output) if x["quick"] == given.quick), end="")


if __name__ == "__main__":
    main()
