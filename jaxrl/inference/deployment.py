"""Takes the policy of a run into a registry: evaluated, written, checked, and only then pointed at."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path

from jaxrl.config.sections import GREEDY
from jaxrl.evaluation import trained_policy
from jaxrl.inference import model_folder
from jaxrl.inference.equivalence import EquivalenceCheck
from jaxrl.runs.registry import LATEST, Gate, ModelRegistry


@dataclasses.dataclass(frozen=True)
class DeploymentOrder:
    """The policy to deploy, the registry, and the conditions.

    Attributes:
      name: of the model in the registry.
      stage: that the new version takes over besides `latest`; "" for none.
      checkpoint: "best", "latest" or a step.
      gates: conditions on the evaluation.
      episodes: that are played for it; 0 for none.
      seed: decides these episodes.
    """

    run: str
    name: str
    stage: str = ""
    checkpoint: str = "best"
    gates: tuple[Gate, ...] = ()
    episodes: int = 100
    seed: int = 0
    licence: str = ""
    trust: bool = False


@dataclasses.dataclass(frozen=True)
class Deployment:
    """A version that was made.

    Attributes:
      step: of the checkpoint.
      checkpoint: which one, in words.
      mode: in which evaluations during training judged it.
      evaluation: metrics by name.
      checks: comparisons with the run, by format.
      left_out: why a format is missing, by format.
      moved: the version that each stage pointed at before, by stage.
    """

    number: int
    place: str
    step: int
    checkpoint: str
    mode: str
    evaluation: Mapping[str, float]
    checks: Mapping[str, EquivalenceCheck]
    left_out: Mapping[str, str]
    moved: Mapping[str, int | None]


def deploy(order: DeploymentOrder, registry: ModelRegistry) -> Deployment:
    """Makes a version of the policy; stages move once everything has been checked.

    Raises:
      ConfigError: the run or a gate cannot be used.
      CheckpointError: the checkpoint is missing or damaged.
      GateClosed: a condition does not hold.
      RunError: a format does not act as the run, or something could not be written.
    """
    policy = trained_policy.load(order.run, order.checkpoint, trust=order.trust)
    evaluation = evaluate(policy, order.episodes, order.seed) if order.episodes else {}
    for gate in order.gates:
        gate.require(evaluation)
    details = model_folder.ModelDetails(
        licence=order.licence, evaluation=evaluation, gates=tuple(map(str, order.gates))
    )
    with tempfile.TemporaryDirectory(prefix="jaxrl-model-") as temporary:
        folder = Path(temporary)
        content = model_folder.write(policy, folder, details)
        number = registry.publish(order.name, folder)
    # `promote` compares all digests again, of what the registry holds.
    stages = dict.fromkeys([LATEST, *filter(None, [order.stage])])
    moved = {stage: registry.promote(order.name, stage, number) for stage in stages}
    return Deployment(
        number=number,
        place=registry.place(order.name, number),
        step=policy.step,
        checkpoint=policy.checkpoint,
        mode=policy.mode,
        evaluation=evaluation,
        checks=content.checks,
        left_out=content.left_out,
        moved=moved,
    )


def evaluate(policy: trained_policy.TrainedPolicy, episodes: int, seed: int) -> dict[str, float]:
    """Greedy episodes, as the forms of a model act: a `Result` by name, and what the environment reports."""
    result, reported = trained_policy.evaluate(policy, episodes, (GREEDY,), seed)[GREEDY]
    found = {name: x for name, x in dataclasses.asdict(result).items() if name != "mode"}
    return {name: float(x) for name, x in (found | reported).items()}
