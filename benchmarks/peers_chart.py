"""Draws the throughput of the trainers that `peers.py` measured, a panel for each work.

  python benchmarks/peers_chart.py runs/peers/cartpole-lstm.json runs/peers/cartpole-mlp.json \\
      --out=docs/img/peers.png

Bars are medians over the rounds, lines run from the slowest to the fastest. Of each file the
measurements with the fewest environments are drawn.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

NAMES = {
    "jaxrl": "jaxrl",
    "purejaxrl": "PureJaxRL",
    "rejax": "rejax",
    "sbx": "SBX",
    "sb3": "Stable-Baselines3",
}
_OURS, _THEIRS = "#d1495b", "#8d99ae"


def rates(record: dict[str, Any]) -> dict[str, list[float]]:
    """Steps per second of each trainer, in the order of `NAMES`; trainers without a sample are left out."""
    envs = min(sample["num_envs"] for sample in record["samples"])
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for sample in record["samples"]:
        if sample["peer"] in found and sample["num_envs"] == envs and not sample["members"]:
            found[sample["peer"]].append(sample["steps"] / sample["seconds"])
    return {name: values for name, values in found.items() if values}


def draw(ax: Any, record: dict[str, Any]) -> None:
    """The bars of one work, the fastest trainer at the top."""
    measured = sorted(rates(record).items(), key=lambda item: statistics.median(item[1]))
    middles = [statistics.median(values) for _, values in measured]
    below = [middle - min(values) for middle, (_, values) in zip(middles, measured, strict=True)]
    above = [max(values) - middle for middle, (_, values) in zip(middles, measured, strict=True)]
    colors = [_OURS if name == "jaxrl" else _THEIRS for name, _ in measured]
    ax.barh(
        [NAMES[name] for name, _ in measured], middles, xerr=[below, above], color=colors, ecolor="#444444"
    )
    for y, (middle, rise) in enumerate(zip(middles, above, strict=True)):
        text = f"{middle / 1000:.3g}k"
        ax.annotate(text, (middle + rise, y), (4, 0), textcoords="offset points", va="center", fontsize=8)
    ax.set_xlim(0, 1.2 * max(middle + rise for middle, rise in zip(middles, above, strict=True)))
    ax.set_title(record["work"], fontsize=10)
    ax.set_xlabel("environment steps per second, updates included", fontsize=8)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f}k")
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+", help="WORK.json of peers.py")
    parser.add_argument("--out", required=True, help="the picture")
    arguments = parser.parse_args()
    records = [json.loads(Path(file).read_text()) for file in arguments.files]
    figure, axes = plt.subplots(1, len(records), figsize=(4.6 * len(records), 2.4), squeeze=False)
    for ax, record in zip(axes.flat, records, strict=True):
        draw(ax, record)
    figure.tight_layout()
    figure.savefig(arguments.out, dpi=90)


if __name__ == "__main__":
    main()
