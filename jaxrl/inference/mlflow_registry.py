"""Versions of models in the model registry of MLflow, beside jaxrl's own."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxrl.config import installation
from jaxrl.config.errors import ConfigError, RunError
from jaxrl.config.text import one_line

LIBRARIES = ("mlflow", "alembic")  # whose loggers write to the terminal
_EXPERIMENT = "jaxrl models"
_FOLDER = "model"  # of a run's artifacts
# MLflow alone would try for many minutes.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


@dataclasses.dataclass(frozen=True)
class MlflowVersion:
    """The model that becomes a version there.

    Attributes:
      name: of the registered model.
      stages: aliases that are to point at it.
      metrics: of its evaluation.
      tags: texts by name.
    """

    name: str
    folder: Path
    stages: tuple[str, ...]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]


def require(uri: str) -> None:
    """Raises ConfigError unless MLflow is installed and the address is one that it takes."""
    installation.require(f"`--mlflow` (={uri!r})", "mlflow", "mlflow")
    if not uri.startswith(("http://", "https://", "sqlite:///")):
        raise ConfigError(f"`--mlflow` (={uri!r}) must be http(s)://HOST or sqlite:///FILE")


def register(uri: str, version: MlflowVersion) -> str:
    """Copies a model's files to a run of MLflow and registers them; returns the version's number there.

    Aliases move last, so that a load by alias finds whole files.

    Raises:
      RunError: MLflow refuses, or is out of reach.
    """
    for variable, setting in _PATIENCE.items():
        os.environ.setdefault(variable, setting)
    from mlflow import MlflowClient

    try:
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        run = client.create_run(_experiment(client, uri), run_name=version.name).info.run_id
        for metric, value in version.metrics.items():
            client.log_metric(run, metric, value)
        client.log_artifacts(run, str(version.folder), _FOLDER)
        client.set_terminated(run)
        if not client.search_registered_models(f"name = '{version.name}'"):
            client.create_registered_model(version.name)
        source = f"{client.get_run(run).info.artifact_uri}/{_FOLDER}"
        made = client.create_model_version(version.name, source, run, tags=dict(version.tags))
        for stage in version.stages:
            # MLflow keeps the word `latest` for itself.
            alias = "newest" if stage == "latest" else stage
            client.set_registered_model_alias(version.name, alias, made.version)
    except Exception as error:  # requests', SQLAlchemy's and its own kinds
        raise RunError(f"`--mlflow` (={uri}): {one_line(error)[:300]}") from error
    return str(made.version)


def _experiment(client: Any, uri: str) -> str:
    found = client.get_experiment_by_name(_EXPERIMENT)
    if found is not None:
        return str(found.experiment_id)
    place = None
    if uri.startswith("sqlite:///"):  # Beside the database, not in the current folder.
        folder = os.path.dirname(os.path.abspath(uri.removeprefix("sqlite:///")))
        place = f"file://{folder}/mlflow-artifacts"
    return str(client.create_experiment(_EXPERIMENT, place))
