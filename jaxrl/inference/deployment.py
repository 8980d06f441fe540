"""Takes the policy of a run into a registry and to MLflow: evaluated, written, checked, then pointed at."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl.config import installation
from jaxrl.config.errors import ConfigError, RunError
from jaxrl.config.sections import GREEDY
from jaxrl.config.text import one_line
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.inference import model_folder
from jaxrl.inference.equivalence import EquivalenceCheck
from jaxrl.runs.registry import LATEST, Gate, ModelRegistry

MLFLOW_LIBRARIES = ("mlflow", "alembic")  # whose loggers write to the terminal
_EXPERIMENT = "jaxrl models"
_FOLDER = "model"  # of a run's artifacts
# MLflow alone would try for many minutes.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


@dataclasses.dataclass(frozen=True)
class Deployment:
    """A version that was made of a policy, and its metrics by name.

    Attributes:
      checks: comparisons with the run, by format.
      left_out: why a format is missing, by format.
      moved: the version that each stage pointed at before, by stage.
    """

    policy: TrainedPolicy
    number: int
    place: str
    evaluation: Mapping[str, float]
    checks: Mapping[str, EquivalenceCheck]
    left_out: Mapping[str, str]
    moved: Mapping[str, int | None]


def deploy(
    run: str,
    registry: ModelRegistry,
    name: str,
    stage: str = "",
    checkpoint: str = "best",
    gates: Sequence[Gate] = (),
    episodes: int = 100,
    seed: int = 0,
    licence: str = "",
    trust: bool = False,
) -> Deployment:
    """Makes a version of the policy; stages move once everything has been checked.

    Args:
      stage: that the new version takes over besides `latest`; "" for none.
      checkpoint: "best", "latest" or a step.
      gates: conditions on the evaluation.
      episodes: that are played for it; 0 for none.
      seed: decides these episodes.

    Raises:
      ConfigError: the run or a gate cannot be used.
      CheckpointError: the checkpoint is missing or damaged.
      GateClosed: a condition does not hold.
      RunError: a format does not act as the run, or something could not be written.
    """
    policy = trained_policy.load(run, checkpoint, trust=trust)
    evaluation: dict[str, float] = {}
    if episodes:  # greedy, as the forms of a model act
        result, reported = trained_policy.evaluate(policy, episodes, (GREEDY,), seed)[GREEDY]
        found = dataclasses.asdict(result) | reported
        evaluation = {name: float(x) for name, x in found.items() if name != "mode"}
    for gate in gates:
        gate.require(evaluation)
    with tempfile.TemporaryDirectory(prefix="jaxrl-model-") as temporary:
        folder = Path(temporary)
        checks, left_out = model_folder.write(policy, folder, licence, evaluation, tuple(map(str, gates)))
        number = registry.publish(name, folder)
    # `promote` compares all digests again, of what the registry holds.
    stages = dict.fromkeys([LATEST, *filter(None, [stage])])
    moved = {stage: registry.promote(name, stage, number) for stage in stages}
    return Deployment(policy, number, registry.place(name, number), evaluation, checks, left_out, moved)


def require_mlflow(uri: str) -> None:
    """Raises ConfigError unless MLflow is installed and the address is one that it takes."""
    installation.require(f"`--mlflow` (={uri!r})", "mlflow", "mlflow")
    if not uri.startswith(("http://", "https://", "sqlite:///")):
        raise ConfigError(f"`--mlflow` (={uri!r}) must be http(s)://HOST or sqlite:///FILE")


def register_with_mlflow(uri: str, name: str, folder: Path, made: Deployment) -> str:
    """Copies a model's files to a run of MLflow and registers them; returns the version's number there.

    Stages become aliases, which move last, so that a load by alias finds whole files.

    Raises:
      RunError: MLflow refuses, or is out of reach.
    """
    for variable, setting in _PATIENCE.items():
        os.environ.setdefault(variable, setting)
    from mlflow import MlflowClient

    try:
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        run = client.create_run(_experiment(client, uri), run_name=name).info.run_id
        for metric, value in made.evaluation.items():
            client.log_metric(run, metric, value)
        client.log_artifacts(run, str(folder), _FOLDER)
        client.set_terminated(run)
        if not client.search_registered_models(f"name = '{name}'"):
            client.create_registered_model(name)
        source = f"{client.get_run(run).info.artifact_uri}/{_FOLDER}"
        tags = {"jaxrl": made.place, "step": str(made.policy.step)}
        version = client.create_model_version(name, source, run, tags=tags).version
        for stage in made.moved:
            # MLflow keeps the word `latest` for itself.
            client.set_registered_model_alias(name, "newest" if stage == LATEST else stage, version)
    except Exception as error:  # requests', SQLAlchemy's and its own kinds
        raise RunError(f"`--mlflow` (={uri}): {one_line(error)[:300]}") from error
    return str(version)


def _experiment(client: Any, uri: str) -> str:
    found = client.get_experiment_by_name(_EXPERIMENT)
    if found is not None:
        return str(found.experiment_id)
    place = None
    if uri.startswith("sqlite:///"):  # Beside the database, not in the current folder.
        folder = os.path.dirname(os.path.abspath(uri.removeprefix("sqlite:///")))
        place = f"file://{folder}/mlflow-artifacts"
    return str(client.create_experiment(_EXPERIMENT, place))
