"""The cost of logging: training with writers against training without any, in turns.

  python benchmarks/logging_cost.py --writers=tensorboard,jsonl --steps=2_000_000 --repeats=5

Options:
  --config=FILE   what to train (default: configs/ppo_mlp.py, the fastest of the shipped ones)
  --writers=...   as in `log.writers`; trackers work offline, in the run's folder
  --steps=N       steps of each run
  --repeats=N     runs with and runs without, one after the other

Without: no writer, no display, no gradient norms by layer. With: all of these, and a row every
`log.every_steps`. Only the time of training counts, rows included; compiling, the one evaluation at the end
and the last checkpoint do not, nor the seconds in which trackers open a run, once. Prints steps per
second, the medians, and the median of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from jaxrl.config.files import load_config

_OPENING_SECONDS = 4.0


def train(config: Any, writers: tuple[str, ...] | None) -> float:
    """Steps per second of one run; with None nothing is written or shown."""
    from jaxrl.config import resolve
    from jaxrl.reporting.writers import MultiWriter, open_writers
    from jaxrl.runs.folder import RunFolder
    from jaxrl.training.assembly import Assembly
    from jaxrl.training.device_count import choose_devices
    from jaxrl.training.trainer import Trainer

    config.log.writers = writers or ()
    config.log.layers = writers is not None
    resolved = resolve(config, choose_devices(config))
    with tempfile.TemporaryDirectory() as path, open(os.devnull, "w") as nowhere:
        folder = RunFolder(path)
        assembly = Assembly.build(resolved)
        with contextlib.redirect_stdout(nowhere), contextlib.ExitStack() as stack:
            writer = MultiWriter(()) if writers is None else stack.enter_context(open_writers(path, resolved))
            trainer = Trainer(resolved, folder, writer, assembly)
            trainer.start()
            if {"wandb", "mlflow", "neptune"} & set(writers or ()):
                writer.status("starting")
                time.sleep(_OPENING_SECONDS)
            started = time.perf_counter()
            trainer.fit()
            seconds = time.perf_counter() - started
            seconds -= sum(assembly.clock.seconds(phase) for phase in ("compile", "evaluate", "save"))
            rate = trainer.steps / seconds
        folder.checkpoints.close()
    return rate


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="configs/ppo_mlp.py")
    parser.add_argument("--writers", default="tensorboard,jsonl")
    parser.add_argument("--steps", type=lambda text: int(text.replace("_", "")), default=2_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    os.environ["WANDB_MODE"] = os.environ["NEPTUNE_MODE"] = "offline"
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    from jaxrl.parallel.compilation import use_compilation_cache

    use_compilation_cache()
    config = load_config(str(Path(arguments.config)))
    config.evaluate.every_steps = config.checkpoint.every_steps = 0
    config.stop.steps = 50_000
    writers = tuple(arguments.writers.split(","))
    for warm_up in (None, writers):
        train(config, warm_up)
    config.stop.steps = arguments.steps
    pairs = [(train(config, None), train(config, writers)) for _ in range(arguments.repeats)]
    print(f"{arguments.config}, {arguments.steps:,} steps, {arguments.writers}")
    print(f"{'without':>10} {'with':>10}  with / without")
    for without, with_ in pairs:
        print(f"{without:10,.0f} {with_:10,.0f}  {with_ / without:.3f}")
    medians = [statistics.median(rates) for rates in zip(*pairs, strict=True)]
    ratio = statistics.median(with_ / without for without, with_ in pairs)
    print(f"{medians[0]:10,.0f} {medians[1]:10,.0f}  {medians[1] / medians[0]:.3f} of the medians")
    print(f"cost: {1 - ratio:.1%} (median of the pairs)")


if __name__ == "__main__":
    main()
