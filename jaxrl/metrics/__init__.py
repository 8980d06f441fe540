"""Metrics of a run, and where they are written to. Every key is explained in docs/metrics.md."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from jaxrl.config import Config
from jaxrl.metrics.base import MultiWriter, Writer
from jaxrl.metrics.console import Console
from jaxrl.metrics.jsonl import JsonlWriter
from jaxrl.metrics.logs import log_to
from jaxrl.metrics.tensorboard import TensorBoardWriter

__all__ = [
    "Console",
    "JsonlWriter",
    "MultiWriter",
    "TensorBoardWriter",
    "Writer",
    "console",
    "log_to",
    "open_writers",
]


@contextlib.contextmanager
def open_writers(folder: str | os.PathLike[str], config: Config) -> Iterator[MultiWriter]:
    """Writes the metrics of a run to the display and into `folder` while the block lasts.

    Fills metrics.jsonl, tensorboard/ and, with log records, train.log.
    """
    path = os.fspath(folder)
    writers: list[Writer] = [console(config), JsonlWriter(os.path.join(path, "metrics.jsonl"))]
    if config.log.tensorboard:
        writers.append(TensorBoardWriter(os.path.join(path, "tensorboard")))
    with contextlib.closing(MultiWriter(writers)) as writer, log_to(os.path.join(path, "train.log")):
        yield writer


def console(config: Config) -> Console:
    """The display of a run of `config`, on standard output."""
    return Console(
        title=f"{config.env.name}  seed {config.seed}",
        subtitle=_describe(config),
        total_steps=config.num_iterations * config.steps_per_iteration,
        total_seconds=config.stop.seconds,
    )


def _describe(config: Config) -> str:
    import jax

    network = config.network
    hidden = " ".join(str(size) for size in network.hidden_sizes)
    core = "feed-forward" if network.core == "none" else f"{network.core} {network.core_size}"
    device = f"{config.device_count} x {jax.devices()[0].device_kind}"
    return f"{network.encoder} {hidden}, {core}; {config.env.num_envs} environments; {device}"
