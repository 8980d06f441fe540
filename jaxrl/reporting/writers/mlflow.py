"""Metrics at MLflow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from jaxrl.config import flatten
from jaxrl.config.local_files import is_remote
from jaxrl.reporting.writers.tracker import Row, Tracker, is_number, keep_off_terminal

# Limits of one call of MLflow's interface.
_MAX_METRICS = 1000
_MAX_PARAMETERS = 100
# By default it would retry for many minutes; rows wait here instead.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "15"}
_STEP = "steps"


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
            artifacts = None if uri else f"file://{folder}/mlflow-artifacts"
            run_id = self._create(artifacts)
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

        if summary is not None:
            numbers = {f"summary/{k}": float(v) for k, v in summary.items() if is_number(v)}
            texts = {k: str(v) for k, v in summary.items() if not is_number(v)}
            step = int(summary.get(_STEP, 0))
            metrics = [Metric(name, value, 0, step) for name, value in numbers.items()]
            tags = [RunTag(name, text) for name, text in texts.items()]
            self._client.log_batch(self._run_id, metrics=metrics, tags=tags)
        self._client.set_terminated(self._run_id, _status(summary))

    def _create(self, artifacts: str | None) -> str:
        found = self._client.get_experiment_by_name(self._project)
        experiment = (
            found.experiment_id if found else self._client.create_experiment(self._project, artifacts)
        )
        run_id: str = self._client.create_run(experiment, run_name=self._run_name).info.run_id
        return run_id

    def _log_config(self) -> None:
        """Logs the configuration as parameters, which are final: a resumed run keeps those it has."""
        from mlflow.entities import Param

        known = self._client.get_run(self._run_id).data.params
        new = (Param(name, str(value)) for name, value in flatten(self._config).items() if name not in known)
        for batch in _batches(new, _MAX_PARAMETERS):
            self._client.log_batch(self._run_id, params=batch)


def _status(summary: Mapping[str, Any] | None) -> str:
    """MLflow's word for the end of a run."""
    if summary is None:
        return "FAILED"
    return "KILLED" if str(summary.get("stop_reason")).startswith("SIG") else "FINISHED"


def _batches(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(islice(items, size)):
        yield batch
