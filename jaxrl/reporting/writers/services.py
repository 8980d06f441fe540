"""Metrics at MLflow, Neptune, and Weights & Biases."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from jaxrl.config import flatten
from jaxrl.config.local_files import is_remote
from jaxrl.reporting.writers.tracker import Row, Tracker, keep_off_terminal

# Limits of one call of MLflow's interface.
_MAX_METRICS = 1000
_MAX_PARAMETERS = 100
# By default it would retry for many minutes; rows wait here instead.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "15"}
_STEP = "steps"
_INIT_SECONDS = 60


class MlflowTracker(Tracker):
    """A run at MLflow: at MLFLOW_TRACKING_URI, or else in `mlflow.db` of the run's folder.

    The project is its experiment.
    """

    name = "mlflow"

    def open(self, resume: bool) -> int:
        for variable, value in _PATIENCE.items():
            os.environ.setdefault(variable, value)
        from mlflow import MlflowClient

        for library in ("mlflow", "alembic"):
            keep_off_terminal(library)
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri and is_remote(self._folder):
            raise RuntimeError(f"MLFLOW_TRACKING_URI is not set, and a database cannot lie in {self._folder}")
        folder = os.path.abspath(self._folder)
        self._client = MlflowClient(tracking_uri=uri or f"sqlite:///{folder}/mlflow.db")
        run_id = self._ids.read() if resume else None
        if run_id is None:
            run_id = self._create(None if uri else f"file://{folder}/mlflow-artifacts")
        self._client.update_run(run_id, status="RUNNING")
        self._run_id = run_id
        self._ids.write(run_id)
        self._log_config()
        return max((x.step for x in self._client.get_metric_history(run_id, _STEP)), default=-1)

    def log(self, rows: Sequence[Row]) -> None:
        from mlflow.entities import Metric

        metrics = (
            Metric(name, float(value), round(1000 * row.time), row.step)
            for row in rows
            for name, value in row.scalars.items()
        )
        for batch in _batches(metrics, _MAX_METRICS):
            self._client.log_batch(self._run_id, metrics=batch)

    def close(self, summary: Mapping[str, Any] | None) -> None:
        from mlflow.entities import Metric, RunTag

        status = "FAILED"
        if summary is not None:
            step = int(summary.get(_STEP, 0))
            numbers = {name: x for name, x in summary.items() if _is_number(x)}
            metrics = [Metric(f"summary/{name}", float(x), 0, step) for name, x in numbers.items()]
            tags = [RunTag(name, str(x)) for name, x in summary.items() if name not in numbers]
            self._client.log_batch(self._run_id, metrics=metrics, tags=tags)
            status = "KILLED" if str(summary.get("stop_reason")).startswith("SIG") else "FINISHED"
        self._client.set_terminated(self._run_id, status)

    def _create(self, artifacts: str | None) -> str:
        client = self._client
        found = client.get_experiment_by_name(self._project)
        experiment = found.experiment_id if found else client.create_experiment(self._project, artifacts)
        return client.create_run(experiment, run_name=self._run_name).info.run_id

    def _log_config(self) -> None:
        """Logs the configuration as parameters, which are final: a resumed run keeps the ones it has."""
        from mlflow.entities import Param

        known = self._client.get_run(self._run_id).data.params
        new = (Param(name, str(value)) for name, value in flatten(self._config).items() if name not in known)
        for batch in _batches(new, _MAX_PARAMETERS):
            self._client.log_batch(self._run_id, params=batch)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _batches(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(islice(items, size)):
        yield batch


class NeptuneTracker(Tracker):
    """A run at Neptune.

    NEPTUNE_PROJECT and NEPTUNE_API_TOKEN name the project; NEPTUNE_MODE=offline writes files for
    `neptune sync`. `project` of the constructor is a tag.
    """

    name = "neptune"

    def open(self, resume: bool) -> int:
        os.environ.setdefault("NEPTUNE_DATA_DIRECTORY", os.path.join(self._folder, ".neptune"))
        import neptune

        keep_off_terminal("neptune")
        # A custom identifier names the run to resume even if it was made offline.
        run_id = (self._ids.read() if resume else None) or uuid.uuid4().hex
        self._run = neptune.init_run(
            custom_run_id=run_id,
            name=self._run_name,
            tags=[self._project],
            source_files=[],
            capture_stdout=False,
            capture_stderr=False,
            capture_traceback=False,
            capture_hardware_metrics=False,
        )
        self._ids.write(run_id)
        self._run["config"] = _replace_unsupported(self._config)
        return -1

    def log(self, rows: Sequence[Row]) -> None:
        for row in rows:
            for name, value in row.scalars.items():
                if math.isfinite(value):
                    series = self._run[f"metrics/{name}"]
                    series.append(float(value), step=row.step, timestamp=row.time)

    def close(self, summary: Mapping[str, Any] | None) -> None:
        if summary is not None:
            self._run["summary"] = _replace_unsupported(summary)
        self._run.stop()


def _replace_unsupported(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces lists and None, which Neptune does not support."""
    flat = flatten(values)
    return {name: x if isinstance(x, (bool, int, float, str)) else str(x) for name, x in flat.items()}


class WandbTracker(Tracker):
    """A run at W&B; its files lie in `wandb/` of the run's folder.

    W&B's own variables configure it: WANDB_API_KEY, WANDB_ENTITY, WANDB_MODE (`offline` writes files for
    `wandb sync`), WANDB_RUN_GROUP, WANDB_TAGS, WANDB_NOTES.
    """

    name = "wandb"

    def open(self, resume: bool) -> int:
        import wandb

        settings = wandb.Settings(console="off", silent=True, init_timeout=_INIT_SECONDS)
        online = os.environ.get("WANDB_MODE", "online") == "online"
        if online and not (os.environ.get("WANDB_API_KEY") or wandb.api.api_key):
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
