"""Prints and draws the return of each trial of runs with the wrapper `trials`, such as `ppo_xland`.

  jaxrl train ppo_xland --config.population.seeds=5 --config.seed=200 --config.num_devices=1 \
      --workdir=runs/xland
  python benchmarks/trials.py runs/xland --out=docs/img/xland_trials.png

Each argument is a run's folder or a population's, whose members are taken. Figures are of training, by
sampled actions: means over the episodes of the last tenth of the rows.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_REPORT = re.compile(r"env/return_trial_(\d+)")


def runs_of(folder: Path) -> list[Path]:
    """The members of a population, or the run itself."""
    return sorted((folder / "members").glob("*")) or [folder]


def rows_of(run: Path) -> list[dict[str, float]]:
    """The rows that report trials.

    Raises:
      SystemExit: there are none.
    """
    lines = (run / "metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if "env/return_trial_1" in row]
    if not rows:
        raise SystemExit(f"{run} has no rows with env/return_trial_1: its episodes have no trials")
    return rows


def by_trial(row: Mapping[str, float], what: str = "return") -> list[float]:
    """The returns or successes of the trials of a row, from the first trial on."""
    count = sum(bool(_REPORT.fullmatch(name)) for name in row)
    return [row[f"env/{what}_trial_{i + 1}"] for i in range(count)]


def at_the_end(rows: Sequence[Mapping[str, float]], what: str = "return") -> list[float]:
    """The means of the last tenth of the rows, weighted by their episodes."""
    last = rows[-max(1, len(rows) // 10) :]
    episodes = sum(row["episode/count"] for row in last)
    sums = [[row["episode/count"] * x for x in by_trial(row, what)] for row in last]
    return [sum(column) / episodes for column in zip(*sums, strict=True)]


def table(runs: Sequence[Path]) -> str:
    """A row for each run: returns by trial, then shares of successful trials if they are reported."""
    lines = []
    for run in runs:
        rows = rows_of(run)
        cells = [f"{x:.2f}" for x in at_the_end(rows)]
        if "env/success_trial_1" in rows[-1]:
            cells += [f"{100 * x:.0f}%" for x in at_the_end(rows, "success")]
        lines.append(f"| {run.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(runs: Sequence[Path], out: str) -> None:
    """Draws returns by trial over training, the runs' mean and range, and by number at the end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    found = [rows_of(run) for run in runs]
    length = min(map(len, found))
    steps = [row["steps"] for row in found[0][:length]]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=(3, 2))
    colours: Any = plt.get_cmap("viridis")
    count = len(by_trial(found[0][-1]))
    for i in range(count):
        columns = list(zip(*[[by_trial(row)[i] for row in rows[:length]] for rows in found], strict=True))
        colour = colours(0.85 * i / max(1, count - 1))
        left.plot(steps, [sum(x) / len(x) for x in columns], color=colour, label=f"trial {i + 1}")
        left.fill_between(steps, list(map(min, columns)), list(map(max, columns)), color=colour, alpha=0.15)
    left.xaxis.set_major_formatter(EngFormatter())
    left.set(xlabel="steps", ylabel="return of a trial")
    left.legend(frameon=False)
    for run, rows in zip(runs, found, strict=True):
        right.plot(range(1, count + 1), at_the_end(rows), marker="o", label=run.name)
    right.set(xlabel="trial", xticks=range(1, count + 1), title="at the end, each seed")
    figure.tight_layout()
    figure.savefig(out, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", help="a picture of this name")
    arguments = parser.parse_args()
    runs = [run for folder in arguments.folders for run in runs_of(folder)]
    print(table(runs))
    if arguments.out:
        draw(runs, arguments.out)


if __name__ == "__main__":
    main()
