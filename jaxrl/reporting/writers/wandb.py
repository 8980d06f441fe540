"""Metrics at Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl.config.local_files import is_remote
from jaxrl.reporting.writers.tracker import Row, Tracker

_INIT_SECONDS = 60


class WandbTracker(Tracker):
    """A run at W&B; its files lie in `wandb/` of the run's folder.

    W&B's own variables configure it: WANDB_API_KEY, WANDB_ENTITY, WANDB_MODE (`offline` writes files for
    `wandb sync`), WANDB_RUN_GROUP, WANDB_TAGS, WANDB_NOTES.
    """

    name = "wandb"

    def open(self, resume: bool) -> int:
        import wandb

        settings = wandb.Settings(console="off", silent=True, init_timeout=_INIT_SECONDS)
        if os.environ.get("WANDB_MODE", "online") == "online" and not _has_key():
            # wandb would ask for it on the terminal, in the middle of the display.
            raise RuntimeError("no API key: run `wandb login`, or set WANDB_MODE=offline")
        self._run = wandb.init(
            project=self._project,
            name=self._run_name,
            config=dict(self._config),
            dir=None if is_remote(self._folder) else self._folder,
            id=self._ids.read() if resume else None,
            resume="allow" if resume else None,
            reinit="create_new",
            settings=settings,
        )
        self._ids.write(self._run.id, None if self._run.offline else self._run.url)
        return int(self._run.step) - 1 if self._run.resumed else -1

    def log(self, rows: Sequence[Row]) -> None:
        import wandb

        for row in rows:
            samples = {name: wandb.Histogram(values) for name, values in row.samples.items()}
            self._run.log({**row.scalars, **samples}, step=row.step)

    def close(self, summary: Mapping[str, Any] | None) -> None:
        if summary is not None:
            self._run.summary.update({f"summary/{name}": value for name, value in summary.items()})
        self._run.finish()


def _has_key() -> bool:
    import wandb

    return bool(os.environ.get("WANDB_API_KEY") or wandb.api.api_key)
