"""The commands of `jaxrl COMMAND`: one module each, with its flags, one call, and what is printed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from jaxrl.config.errors import did_you_mean

COMMANDS = {
    "train": "trains a policy, or resumes what a signal or a kill stopped",
    "evaluate": "plays whole episodes with a checkpoint, or a suite of environments",
    "benchmark": "times a config, and says where the time goes",
    "inference-benchmark": "measures latency and throughput of acting",
    "compare": "compares runs and seeds: statistics, plots, a report",
    "export": "writes a policy as StableHLO, ONNX or arrays, and checks that it acts the same",
    "watch": "follows runs live on a terminal",
    "doctor": "says whether the machine is ready to train",
    "preflight": "compiles a config for this machine or another, and says what fits",
    "sync": "copies run folders between disks and buckets",
    "verify-checkpoint": "compares every array of a run's checkpoints with its digest",
    "profile-summary": "lists the top operations of a device trace, and its phases",
}


def run(argv: Sequence[str] | None = None) -> int:
    """Runs `jaxrl COMMAND ...`; returns the exit code (2: no such command)."""
    _, *arguments = sys.argv if argv is None else argv
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        print(_usage())
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        print(f"error: `{command}` is no command{did_you_mean(command, COMMANDS)}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"jaxrl.commands.{command.replace('-', '_')}")
    code: int = module.main([f"jaxrl {command}", *rest])
    return code


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = (f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    return "\n".join(
        ["usage: jaxrl COMMAND [ARGUMENTS]", "", *lines, "", "jaxrl COMMAND --help says what it takes."]
    )
