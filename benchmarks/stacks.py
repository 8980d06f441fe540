"""Speed, compilation and seconds to a score on several Pythons, whose versions of jax may differ.

  python benchmarks/stacks.py .venv/bin/python OTHER/bin/python [--rounds=5] [--only=ppo,sac]

Each Python has jaxrl installed. Configs are trained as shipped, or for the steps of `STEPS`. The Pythons take
turns in every round, with one seed a round; each run is a process with an empty compilation cache. Ratios are
those of the last Python to the first in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

# None: until the config's own score is reached.
STEPS = {"ppo": None, "ppo_mlp": None, "ppo_minatar": 600_000, "sac": 6_000}


def measure(python: str, config: str, seed: int) -> dict[str, Any]:
    """The summary of a run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [python, "-m", "jaxrl", "train", config, f"--config.seed={seed}", "--workdir=run"]
        if steps := STEPS[config]:
            command += [f"--config.stop.steps={steps}", "--config.stop.return=None"]
        subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{folder}/cache"},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
    return {
        "steps/s": summary["steps_per_second"],
        "compilation s": summary["compile_seconds"],
        "to the end s": summary["seconds"],
        "jax": summary["versions"]["jax"],
        "python": summary["versions"]["python"],
    }


def row(config: str, found: list[list[dict[str, Any]]], name: str) -> str:
    """Medians of each Python, and the median and range of the ratios."""
    medians = [statistics.median(run[name] for run in runs) for runs in found]
    ratios = sorted(last[name] / first[name] for first, last in zip(found[0], found[-1], strict=True))
    shown = " | ".join(f"{x:,.0f}" if x >= 100 else f"{x:.1f}" for x in medians)
    ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return f"| {config} | {name} | {shown} | {ratio} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pythons", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(STEPS))
    given = parser.parse_args()
    lines = []
    for config in given.only:
        found: list[list[dict[str, Any]]] = [[] for _ in given.pythons]
        for seed in range(given.rounds):
            for runs, python in zip(found, given.pythons, strict=True):
                runs.append(measure(str(Path(python).absolute()), config, seed))
                print(config, seed, runs[-1], flush=True)
        names = ["steps/s", "compilation s", *([] if STEPS[config] else ["to the end s"])]
        lines += [row(config, found, name) for name in names]
    stacks = [f"Python {runs[0]['python']}, jax {runs[0]['jax']}" for runs in found]
    head = f"| config | | {' | '.join(stacks)} | ratio (range over rounds) |"
    print("\n".join([head, f"|---|---|{'---|' * (len(stacks) + 1)}", *lines]))


if __name__ == "__main__":
    main()
