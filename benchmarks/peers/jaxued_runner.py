"""JaxUED's `maze_dr.py` or `maze_plr.py`, unmodified, for `jaxued.py`: trains on for each line on stdin.

PYTHON benchmarks/peers/jaxued_runner.py CHECKOUT EXAMPLE [FLAGS...]

A turn is one call of its compiled program, `--eval_freq` updates and an evaluation, and reports its seconds.
The first turn also compiles. Its examples send what they log to wandb; a stand-in for that package takes it,
so that films are drawn but neither encoded nor sent.
"""

from __future__ import annotations

import outcome  # isort: skip

import runpy
import sys
import time
import types
from pathlib import Path
from typing import Any


class _Log(types.ModuleType):
    """A stand-in for wandb, which reports a turn where it is to log, and waits for the next."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.config: dict[str, Any] = {}
        self.Image = self.Video = lambda *args, **kwargs: None
        self._started = time.perf_counter()

    def init(self, config: dict[str, Any], **_: Any) -> None:
        self.config = config

    def define_metric(self, *args: Any, **kwargs: Any) -> None:
        pass

    def log(self, values: dict[str, Any]) -> None:
        """Everything in `values` has been computed by now: its films are arrays of numpy."""
        versions = outcome.versions("jax", "flax", "optax", "distrax", "gymnax")
        outcome.report(seconds=time.perf_counter() - self._started, versions=versions)
        if not sys.stdin.readline():
            raise SystemExit
        self._started = time.perf_counter()


def main() -> None:
    checkout, example, *flags = sys.argv[1:]
    sys.modules["wandb"] = _Log()
    sys.path.insert(0, str(Path(checkout) / "src"))
    script = str(Path(checkout) / "examples" / example)
    sys.argv = [script, *flags]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
