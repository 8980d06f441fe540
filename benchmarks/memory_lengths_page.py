"""The tables and heat maps of `benchmarks/memory_lengths.py`, from the lines that it keeps."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl.networks.cores import CORES

Run = Mapping[str, Any]


def tables(runs: Sequence[Run], delays: Mapping[str, Sequence[int]], steps: int, seconds: float) -> str:
    """A table for each series, as Markdown.

    Args:
      runs: lines of runs.jsonl.
      delays: the columns of each series.
      steps: of a seed, within which the second column looks for the longest delay.
      seconds: of a seed, for the third column.
    """
    return "\n".join(
        _table(name, [run for run in runs if run["series"] == name], columns, steps, seconds)
        for name, columns in delays.items()
        if any(run["series"] == name for run in runs)
    )


def _table(name: str, runs: Sequence[Run], delays: Sequence[int], steps: int, seconds: float) -> str:
    heads = ["core", f"{steps:,} steps", f"{seconds:g} s", "steps/s", *(f"{x:,}" for x in delays)]
    lines = [f"### {name}", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for core in _cores(runs):
        of_core = [run for run in runs if run["core"] == core]
        rate = sum(run["steps"] for run in of_core) / sum(run["seconds"] for run in of_core)
        row = [f"`{core}`", longest(of_core, "steps", steps), longest(of_core, "seconds", seconds)]
        row += [f"{rate / 1e3:,.0f}k", *(outcome(_at(of_core, delay)) for delay in delays)]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join([*lines, ""])


def longest(runs: Sequence[Run], unit: str, most: float) -> str:
    """The longest delay that every seed solved within `most` of `unit`, "steps" or "seconds".

    A seed that was not trained at a delay, since it had failed at a shorter one, has not solved it.
    """
    seeds = {run["seed"] for run in runs}
    solved = {
        delay: {run["seed"] for run in _at(runs, delay) if run["solved"] and run[unit] <= most}
        for delay in {run["delay"] for run in runs}
    }
    found = [delay for delay, of_delay in solved.items() if of_delay == seeds]
    return f"{max(found):,}" if found else "none"


def outcome(runs: Sequence[Run]) -> str:
    """The seeds of a core at a delay: `2/3, 1.5 s, 82k` or `0/3, 51%, 508k`; "-" without any.

    Solved are two of three, with the median of their seconds and steps; if none, the mean share of right
    answers at the end, and the steps.
    """
    if not runs:
        return "-"
    solved = [run for run in runs if run["solved"]]
    steps = statistics.median(run["steps"] for run in solved or runs)
    seconds = statistics.median(run["seconds"] for run in solved or runs)
    middle = f"{seconds:.1f} s" if solved else f"{100 * share(runs):.0f}%"
    return f"{len(solved)}/{len(runs)}, {middle}, {steps / 1e3:,.0f}k"


def described(run: Run) -> str:
    """`ppo, s5, delay 64, seed 0: solved, 97% right, 65,536 steps, 0.9 s`."""
    name = f"{run['series']}, {run['core']}, delay {run['delay']}, seed {run['seed']}"
    ending = "solved" if run["solved"] else "not solved"
    return (
        f"{name}: {ending}, {100 * share([run]):.0f}% right, {run['steps']:,} steps, {run['seconds']:.1f} s"
    )


def share(runs: Sequence[Run]) -> float:
    """The mean over seeds of the share of right answers; NaN if too few episodes ended."""
    known = [run["share"] for run in runs if run["share"] is not None]
    return statistics.mean(known) if known else float("nan")


def draw(runs: Sequence[Run], delays: Mapping[str, Sequence[int]], pictures: Path) -> None:
    """Draws a heat map for each series: the share of right answers by core and delay, seconds in it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for name, columns in delays.items():
        of_series = [run for run in runs if run["series"] == name]
        if not of_series:
            continue
        cores = _cores(of_series)

        def seeds(core: str, delay: int, given: Sequence[Run] = of_series) -> list[Run]:
            return _at([run for run in given if run["core"] == core], delay)

        figure, ax = plt.subplots(figsize=(2.4 + 0.95 * len(columns), 1.1 + 0.3 * len(cores)))
        ax.set_facecolor("0.85")
        shares = [[share(seeds(core, delay)) for delay in columns] for core in cores]
        image = ax.imshow(shares, cmap="cividis", vmin=0.5, vmax=1.0, aspect="auto")
        _write(ax, cores, columns, seeds)
        ax.set_xlabel("delay, steps")
        ax.set_title(f"{name}: CPU seconds to solve, or right answers", fontsize="medium")
        figure.colorbar(image, label="right answers at the end")
        figure.tight_layout()
        figure.savefig(pictures / f"memory_lengths_{name}.png", dpi=100)
        plt.close(figure)


def _write(
    ax: Any, cores: Sequence[str], delays: Sequence[int], seeds: Callable[[str, int], list[Run]]
) -> None:
    """Labels the axes; writes the seconds to solve, the share of right answers or "not run" in each field."""
    for row, core in enumerate(cores):
        for column, delay in enumerate(delays):
            found = seeds(core, delay)
            solved = [run["seconds"] for run in found if run["solved"]]
            text = f"{100 * share(found):.0f}%" if found else "not run"
            if solved:
                text = f"{statistics.median(solved):.1f} s"
                text += f" ({len(solved)}/{len(found)})" if len(solved) < len(found) else ""
            colour = "white" if share(found) < 0.75 else "black"
            ax.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    ax.set_xticks(range(len(delays)), [f"{x:,}" for x in delays])
    ax.set_yticks(range(len(cores)), cores)


def _cores(runs: Sequence[Run]) -> list[str]:
    """The cores of some lines, in the order of the registry."""
    return [core for core in CORES.names() if any(run["core"] == core for run in runs)]


def _at(runs: Sequence[Run], delay: int) -> list[Run]:
    return [run for run in runs if run["delay"] == delay]
