"""Writers of a run's metrics. Every key is explained in docs/metrics.md."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from jaxrl.config import Config, ConfigError, installation, to_json
from jaxrl.reporting.logs import log_to
from jaxrl.reporting.writers.services import MlflowTracker, NeptuneTracker, WandbTracker
from jaxrl.reporting.writers.tensorboard import TensorBoardWriter
from jaxrl.reporting.writers.tracker import Background, Tracker
from jaxrl.reporting.writers.writer import CsvWriter, JsonlWriter, MultiWriter, Writer

__all__ = [
    "Background",
    "CsvWriter",
    "JsonlWriter",
    "MlflowTracker",
    "MultiWriter",
    "NeptuneTracker",
    "TensorBoardWriter",
    "WandbTracker",
    "Writer",
    "configured_writers",
    "console",
    "log_to",
    "open_writers",
    "require_packages",
]

if TYPE_CHECKING:
    from jaxrl.reporting.display.console import Console

_TRACKERS: dict[str, Callable[..., Tracker]] = {
    "wandb": WandbTracker,
    "mlflow": MlflowTracker,
    "neptune": NeptuneTracker,
}


@contextlib.contextmanager
def open_writers(
    folder: str | os.PathLike[str],
    config: Config,
    files_at: str | None = None,
    highlights: Sequence[tuple[str, str]] = (),
    network: str = "",
    others: Sequence[Writer] = (),
) -> Iterator[MultiWriter]:
    """Opens the display and the writers of `log.writers` for the duration of the block.

    The files metrics.jsonl, metrics.csv, tensorboard/ and train.log are in `folder`, or in the local folder
    `files_at` if given. Displays show `highlights`, (metric, label), and describe the `network`.
    `others` close after the writers in `log.writers`.
    """
    path = files_at or os.fspath(folder)
    writers = configured_writers(folder, config, path, highlights)
    display = console(config, highlights, network)
    # The display opens first and closes last: it shows the warnings of the others.
    with (
        contextlib.closing(display),
        log_to(os.path.join(path, "train.log")),
        contextlib.closing(MultiWriter([*writers, *others, display])) as writer,
    ):
        yield writer


def configured_writers(
    folder: str | os.PathLike[str], config: Config, files_at: str, highlights: Sequence[tuple[str, str]]
) -> list[Writer]:
    """Opens the writers of `log.writers` for the run in `folder`; their files are in `files_at`."""
    values = to_json(config)
    files: dict[str, Callable[[], Writer]] = {
        "jsonl": lambda: JsonlWriter(os.path.join(files_at, "metrics.jsonl")),
        "csv": lambda: CsvWriter(os.path.join(files_at, "metrics.csv")),
        "tensorboard": lambda: TensorBoardWriter(os.path.join(files_at, "tensorboard"), values, highlights),
    }

    def tracker(name: str) -> Writer:
        return Background(_TRACKERS[name](os.fspath(folder), config.log.project, config.log.name, values))

    return [files[name]() if name in files else tracker(name) for name in config.log.writers]


def require_packages(writers: Sequence[str]) -> None:
    """Raises ConfigError if a tracker of `log.writers` is not installed."""
    for name in writers:
        if name in _TRACKERS and importlib.util.find_spec(name) is None:
            raise ConfigError(f"`log.writers` (={writers}) needs a package: {installation.command(name)}")


def console(config: Config, highlights: Sequence[tuple[str, str]] = (), network: str = "") -> Console:
    """The display of a run of `config`, on standard output; `network` is in words."""
    import jax

    from jaxrl.reporting.display.console import Console  # A writer itself.

    last = config.seed + config.population.seeds - 1
    seeds = f"seed {config.seed}" if last == config.seed else f"seeds {config.seed} to {last}"
    environments = f"{config.env.num_envs:,} environments" if config.collects else ""
    device = f"{config.device_count} x {jax.devices()[0].device_kind}"
    return Console(
        title=f"{config.env.name}  {seeds}",
        subtitle="; ".join(filter(None, (network, environments, device))),
        total_steps=config.num_iterations * config.steps_per_iteration if config.stop.steps else None,
        total_seconds=config.stop.seconds,
        highlights=highlights,
        clock=config.clock,
    )
