"""Writes wall times and returns of runs that it makes itself into the table of `docs/results_configs.md`.

  python benchmarks/config_table.py --runs=runs/results --seeds=3
  python benchmarks/config_table.py --runs=runs/results --seeds=3 ppo ppo_mlp:gymnax:Acrobot-v1
  python benchmarks/config_table.py --runs=runs/results --seeds=0

Without names it makes every row of the table; runs that are complete in --runs are not repeated. With
--seeds=0 it trains nothing and writes what --runs holds. Rows without runs stay as they are. The runs are
those of `learning_curves.py train`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import learning_curves

PAGE = learning_curves.ROOT / "docs" / "results_configs.md"
# The first cell of a row: a config, or another environment for the config above it.
_CONFIG = re.compile(r"\[`(\w+)\.py`\]")
_ENVIRONMENT = re.compile(r"`--env=([^`]+)`")


def rows(text: str) -> Iterator[tuple[str, str]]:
    """(experiment, line) of each row of the table, as `ppo` or `ppo_mlp:gymnax:Acrobot-v1`."""
    config, table = "", text.partition("| config | trains |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        first = line.split("|")[1]
        found, environment = _CONFIG.search(first), _ENVIRONMENT.search(first)
        config = found[1] if found else config
        yield (f"{config}:{environment[1]}" if environment else config), line


def rewritten(text: str, runs: Path) -> str:
    """The page with the figures of every experiment that has runs."""
    for experiment, line in rows(text):
        folder = runs / experiment.replace(":", "-")
        seeds = sorted(path.parent for path in folder.glob("*/wall.json"))
        if seeds:
            cells = line.split(" | ")
            cells[2:] = [duration(seeds), f"{returns(seeds, cells[3])} |"]
            text = text.replace(line, " | ".join(cells))
    return text


def duration(seeds: Sequence[Path]) -> str:
    """The wall time of whole runs, from the shortest to the longest."""
    seconds = [json.loads((seed / "wall.json").read_text())["seconds"] for seed in seeds]
    for unit, size in (("h", 3600), ("min", 60), ("s", 1)):
        if min(seconds) >= size or size == 1:
            return f"{learning_curves.span([x / size for x in seconds])} {unit}"
    raise AssertionError


def returns(seeds: Sequence[Path], before: str) -> str:
    """The lowest and highest mean return of a seed; a best possible one (`of 500`) is taken over."""
    means = [learning_curves.evaluated(seed)["mean"] for seed in seeds]
    digits = 1 if max(map(abs, means)) < 20 else 0
    low, high = f"{min(means):.{digits}f}", f"{max(means):.{digits}f}"
    best = re.search(r" of [\d.,]+", before)
    count = f"{len(means)} seed{'s' * (len(means) > 1)}"
    return f"{low if low == high else f'{low} to {high}'}{best[0] if best else ''} ({count})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("experiments", nargs="*")
    parser.add_argument("--runs", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    known = [experiment for experiment, _ in rows(PAGE.read_text())]
    if unknown := set(arguments.experiments) - set(known):
        parser.error(f"not in the table: {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    arguments.experiments, arguments.fields = arguments.experiments or known, []
    learning_curves.train(arguments)
    PAGE.write_text(rewritten(PAGE.read_text(), Path(arguments.runs)))


if __name__ == "__main__":
    main()
