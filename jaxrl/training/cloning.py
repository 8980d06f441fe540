"""A policy cloned from demonstrations before it is trained: its configuration, its run, and its check."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from jaxrl.config import Config, ConfigError, check_config, default_config
from jaxrl.config.environment import spec_of
from jaxrl.config.errors import errors_as
from jaxrl.envs.base import Dict, Discrete, EnvSpec, Mixed, MultiDiscrete, Space
from jaxrl.evaluation.policy_function import unit_of_densities
from jaxrl.experience.demonstrations import Dataset, DatasetFault, Episode, read_dataset
from jaxrl.experience.demonstrations.demonstrations import rows_needed
from jaxrl.experience.demonstrations.simulation import require_same_levels
from jaxrl.parallel.processes import Processes
from jaxrl.runs.clones import REPORT
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.records import MetricsTail
from jaxrl.runs.signals import Interruption
from jaxrl.training.run import Invocation, RunOutcome, run

log = logging.getLogger(__name__)

_ALGORITHM = "behavior_cloning"
_MOST_LANES = 64
_CHUNK = 16  # steps of a sequence, for networks with memory
_MOST_PADDING = 1.25  # rows, as a multiple of the layout with fewest
_LEAST_GAIN = 0.01  # nats a step that a clone must gain over one that sees nothing
_ROUNDING = 8  # sequences of a lane are a multiple of this, so that they divide into minibatches
# Sections and fields of a configuration that decide which policy acts, and how it is monitored.
_KEPT = ("env", "network", "evaluate", "host", "log", "storage", "population")
_KEPT_FIELDS = ("seed", "num_devices", "notes", "init_from", "init_names")


@dataclass(frozen=True)
class CloningPlan:
    """The settings by which a policy is cloned.

    Attributes:
      data: folder of the episodes.
      epochs: passes over them at most.
      learning_rate: of Adam.
      validation: share of the episodes.
      patience: validations without a better likelihood that end it; 0: none does.
      class_weights: see `behavior_cloning.class_weights`.
    """

    data: str
    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 3e-4
    validation: float = 0.1
    patience: int = 3
    class_weights: str = "none"


@dataclass(frozen=True)
class CloningLayout:
    """The order of episodes in arrays; `chunk` are steps of a sequence."""

    lanes: int
    rows: int
    chunk: int
    minibatches: int

    @classmethod
    def of(cls, lengths: Sequence[int], batch_size: int, chunk: int, multiple: int) -> CloningLayout:
        """The layout with many lanes and little padding, and minibatches of about `batch_size` steps.

        Args:
          lengths: of the training episodes.
          chunk: steps of a sequence, at most the longest episode.
          multiple: of the lanes, for devices to share them out.
        """
        chunk = min(chunk, max(lengths))
        unit = chunk * _ROUNDING

        def rows(lanes: int) -> int:
            return -(-rows_needed(lengths, lanes) // unit) * unit

        most = max(min(len(lengths), _MOST_LANES) // multiple, 1) * multiple
        cost = {n: n * rows(n) for n in range(multiple, most + 1, multiple)}
        # Many lanes are stepped side by side: for that some padding is worth its work.
        lanes = max(n for n, size in cost.items() if size <= _MOST_PADDING * min(cost.values()))
        length = rows(lanes)
        wanted = max(lanes * length // max(batch_size, chunk), 1)
        counts = (d * k for d in _divisors(lanes // multiple) for k in _divisors(length // chunk))
        return cls(lanes, length, chunk, min(counts, key=lambda m: (abs(math.log(m / wanted)), m)))


def read_demonstrations(flag: str, folder: str, config: Config) -> Dataset:
    """The episodes that `flag` names, for the environment of a configuration.

    Raises:
      ConfigError: they are none, of other spaces or of other levels.
    """
    with errors_as(ConfigError, f"`{flag}`", DatasetFault):
        dataset = read_dataset(folder, spec_of(config.env))
        require_same_levels(dataset, config.env.name)
    return dataset


def cloning_config(config: ConfigDict, plan: CloningPlan) -> tuple[ConfigDict, Dataset]:
    """(the configuration of the cloning run, its data) before the run of `config`.

    Network, environment and normalisation of observations stay, so that `init_from` gives that run all of
    the clone.

    Raises:
      ConfigError: the data cannot be learnt from.
    """
    checked = check_config(config)
    dataset = read_demonstrations("--data", plan.data, checked)
    training, _ = dataset.split(plan.validation)
    chunk = 1 if checked.network.core == "none" else _CHUNK
    devices = max(checked.num_devices, 1)
    layout = CloningLayout.of([len(e) for e in training], plan.batch_size, chunk, devices)
    clone = default_config(_ALGORITHM)
    given = config.to_dict()
    for section in _KEPT:
        for field, value in given[section].items():
            clone[section][field] = value
    for field in _KEPT_FIELDS:
        clone[field] = given[field]
    clone.normalize.observations = config.normalize.observations
    clone.normalize.clip_observations = config.normalize.clip_observations
    clone.env.num_envs = layout.lanes
    clone.env.stagger = False
    clone.num_devices = devices
    clone[_ALGORITHM].update(
        data=plan.data,
        rollout_length=layout.rows,
        sequence_length=layout.chunk,
        num_minibatches=layout.minibatches,
        learning_rate=plan.learning_rate,
        validation=plan.validation,
        patience=plan.patience,
        class_weights=plan.class_weights,
    )
    clone.stop.steps = plan.epochs * layout.minibatches
    clone.log.every_steps = clone.checkpoint.every_steps = layout.minibatches
    clone.evaluate.every_steps = 0
    return clone, dataset


def best_validation(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Metrics of the best validation, whose parameters the clone has; empty without any."""
    prefix = f"{_ALGORITHM}/validation_"
    loss = f"{prefix}loss"
    judged = [row for row in rows if loss in row and math.isfinite(row[loss])]
    if not judged:
        return {}
    best = min(judged, key=lambda row: row[loss])
    return {name: value for name, value in best.items() if name.startswith(prefix)}


def report(
    plan: CloningPlan,
    dataset: Dataset,
    spec: EnvSpec,
    unit: float | tuple[float, ...],
    row: Mapping[str, Any],
) -> dict[str, Any]:
    """The record of a clone at its end, as JSON values; `passed` says whether it has learnt anything.

    Args:
      unit: of the policy's densities (`jaxrl.networks.Head`).
      row: the last metrics of the run, of validation the best.
    """
    training, validation = dataset.split(plan.validation)
    cost = row.get(f"{_ALGORITHM}/validation_loss")
    judged = "validation" if validation and cost is not None else "training"
    cost = cost if judged == "validation" else row.get("loss/policy")
    episodes = validation if judged == "validation" else training
    # With few episodes the frequencies of training may say less of these than no frequencies at all.
    prior = min(prior_loss(part, episodes, spec, unit) for part in (training, episodes))
    passed = cost is not None and math.isfinite(cost) and cost < prior - _LEAST_GAIN
    names = ("accuracy", "absolute_error")
    prefix = f"{_ALGORITHM}/validation_" if judged == "validation" else f"{_ALGORITHM}/"
    told = {name: row[f"{prefix}{name}"] for name in names if f"{prefix}{name}" in row}
    played = {name: value for name, value in row.items() if name.startswith("eval/")}
    return {
        "passed": passed,
        "judged_by": judged,
        "loss": cost,
        "prior_loss": prior,
        **told,
        "training_loss": row.get("loss/policy"),
        "played": played,
        "plan": asdict(plan),
        "data": dataset.summary(),
        "episodes": {"training": len(training), "validation": len(validation)},
    }


def prior_loss(
    training: Sequence[Episode],
    judged: Sequence[Episode],
    spec: EnvSpec,
    unit: float | tuple[float, ...] = 1.0,
) -> float:
    """The negative log-likelihood per step of a policy that sees nothing, in nats.

    Of discrete actions it knows the frequencies, with one more of each so that none is impossible; of
    others mean and standard deviation of each component, in units of the policy's densities.
    """
    own, other = (np.concatenate([e.actions for e in part]) for part in (training, judged))
    own, other = (x.reshape(len(x), -1) for x in (own, other))
    space = spec.action_space
    parts = [part for _, part in space.spaces] if isinstance(space, Mixed) else [space]
    classes = [n for part in parts for n in _classes(part)]
    units = np.broadcast_to(unit, own.shape[1])
    total = 0.0
    for n, unit_of_one, a, b in zip(classes, units, own.T, other.T, strict=True):
        total += _categorical_loss(n, a, b) if n else _gaussian_loss(a / unit_of_one, b / unit_of_one)
    return total


def _classes(space: Space) -> Sequence[int]:
    """The number of categories of each number of an action; 0 of a continuous one."""
    assert not isinstance(space, Dict | Mixed)
    if isinstance(space, Discrete):
        return (space.n,)
    return space.nvec if isinstance(space, MultiDiscrete) else (0,) * math.prod(space.shape)


def _gaussian_loss(own: np.ndarray, other: np.ndarray) -> float:
    std = max(own.std(dtype=np.float64), 1e-3)
    z = (other - own.mean(dtype=np.float64)) / std
    return float((0.5 * (z**2 + math.log(2 * math.pi)) + math.log(std)).mean())


def _categorical_loss(classes: int, own: np.ndarray, other: np.ndarray) -> float:
    counts = Counter(own.tolist())
    total = len(own) + classes
    return float(-np.mean([math.log((counts[a] + 1) / total) for a in other.tolist()]))


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def clone(
    config: ConfigDict,
    plan: CloningPlan,
    workdir: str,
    interruption: Interruption,
    processes: Processes = Processes(),  # noqa: B008
) -> tuple[RunOutcome, dict[str, Any] | None]:
    """Clones, or continues where a run in `workdir` was stopped.

    Returns:
      (the end of the run, what is known of the clone, which the folder has as clone.json; None if a signal
      ended it).

    Raises:
      ConfigError: the configuration, the data or the folder is wrong.
      RunError: it cannot continue.
    """
    cloning, dataset = cloning_config(config, plan)
    outcome = run(cloning, workdir, interruption, Invocation(processes=processes))
    if outcome.exit_code or not outcome.is_first:
        return outcome, None
    folder = RunFolder(outcome.folder)
    stored = folder.read_config()
    spec = spec_of(stored.env)
    _, rows = MetricsTail(folder.path).poll()
    merged: dict[str, Any] = {}
    for row in rows:
        merged |= row
    if plan.patience:
        merged |= best_validation(rows)
    found = report(plan, dataset, spec, unit_of_densities(stored), merged)
    folder.write_report(REPORT, found)
    if not found["passed"]:
        log.info("the clone is no better than one without observations: %s", found["loss"])
    return outcome, found
