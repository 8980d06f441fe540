"""Steps per second of training with the encoder `graph` and with each architecture, in one process.

    python benchmarks/graph_networks.py [SECONDS] [NAME=VALUE ...]

trains `ppo_platformer` on the graphs of hills with 64 environments. Only
ratios are worth comparing between machines. NAME=VALUE changes a field of the configuration.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from jaxrl.config import resolve
from jaxrl.config.files import load_config
from jaxrl.config.overrides import override
from jaxrl.diagnostics.architectures import training_cost
from jaxrl.networks import ARCHITECTURES

NAMES = [name for name, record in ARCHITECTURES.items() if {"graph"} < set(record.sees) <= {"graph", "state"}]


def main(arguments: Sequence[str]) -> None:
    """Prints a line for each network."""
    seconds = float(arguments[0]) if arguments else 5.0
    slowest = 0.0
    for name in ("", *NAMES):
        config = load_config("ppo_platformer")
        config.env.name = "jaxrl:Platformer(observation='graph', category='simple')"
        config.env.num_envs = 64
        config.network.architecture = name
        for change in arguments[1:]:
            override(config, *change.split("=", 1))
        rate = training_cost(resolve(config, 1), seconds).steps_per_second
        slowest = slowest or rate
        print(f"{name or 'encoder graph':14} {rate:8,.0f} steps/s, {rate / slowest:5.1f} times", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
