"""The stages of a pipeline and the settings of each, declared once.

Besides these a section takes the flags of the stage's command by name, and if that trains, fields of its
configuration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import Field, at_least, declarations, each, field, matches

_NAME = matches(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", "be letters, digits and ._- (at most 100)")


@dataclasses.dataclass(frozen=True)
class DataSettings:
    enabled: bool = field(False, help="generate levels, or record episodes, and verify them")
    verify: bool = field(True, help="check what was written with jaxrl verify-data")


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    enabled: bool = field(False, help="search values of fields; the winner's configuration is then trained")
    config: str = field("", help="a config file, or the name of a shipped one; empty: as for train")
    space: str = field(
        "", help="a file of fields and their ranges (docs/search.md); or a section with these themselves"
    )


@dataclasses.dataclass(frozen=True)
class PretrainSettings:
    enabled: bool = field(False, help="imitate recorded episodes first; training starts from that policy")
    config: str = field("", help="a config file, or the name of a shipped one; empty: what is trained")
    data: str = field("{data.folder}", help="the folder with the episodes")


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    enabled: bool = field(True, help="train")
    config: str = field("ppo", help="a config file, or the name of a shipped one")


@dataclasses.dataclass(frozen=True)
class EvaluateSettings:
    enabled: bool = field(True, help="play episodes, and suites if any are named")
    checkpoint: str = field("best", help="which checkpoint: best, latest, or a step")
    episodes: int = field(100, at_least(1), help="episodes in the environment of training")
    suites: tuple[str, ...] = field((), help="suite files, or names of shipped ones")


@dataclasses.dataclass(frozen=True)
class VisualizeSettings:
    enabled: bool = field(True, help="plot learning curves, and record episodes")
    checkpoint: str = field("best", help="checkpoint to record: best, latest, or a step")
    curves: bool = field(True, help="draw the return against the steps (needs the compare extra)")
    seeds: tuple[int, ...] = field((), each(at_least(0)), help="a video for each (needs the video extra)")


@dataclasses.dataclass(frozen=True)
class ReportSettings:
    enabled: bool = field(True, help="write report.html (needs the compare extra)")
    pdf: bool = field(True, help="write report.pdf too")


@dataclasses.dataclass(frozen=True)
class DeploySettings:
    enabled: bool = field(False, help="take the policy to where models are kept")
    to: str = field("results/models", help="the folder of models")
    name: str = field("", help="the model's name; empty: the pipeline's")
    checkpoint: str = field("best", help="which checkpoint: best, latest, or a step")
    format: str = field("", help="format for jaxrl export; empty: jaxrl deploy, or onnx if there is none")


@dataclasses.dataclass(frozen=True)
class StageKind:
    """A stage as such.

    Attributes:
      command: of `jaxrl`, whose flags the section takes; "" for none.
      chosen: flags that the pipeline sets itself.
      takes_fields: True if the command takes fields of a configuration.
      also: another name of the section.
      instead: the command if a format is named; "" for none.
    """

    settings: type
    command: str
    chosen: tuple[str, ...] = ()
    takes_fields: bool = False
    also: str = ""
    instead: str = ""


_RUN = ("workdir", "output-dir", "config", "resume", "resume_from", "print-config")
STAGES: Mapping[str, StageKind] = {
    "data": StageKind(DataSettings, "prepare-data", ("output", "output_dir"), also="data_preparation"),
    "search": StageKind(SearchSettings, "search", _RUN, True, also="hyperparameter_search"),
    "pretrain": StageKind(PretrainSettings, "pretrain", _RUN, True, also="pretraining"),
    "train": StageKind(TrainSettings, "train", _RUN, True, also="training"),
    "evaluate": StageKind(EvaluateSettings, "evaluate", ("workdir", "suite", "video"), also="evaluation"),
    "visualize": StageKind(
        VisualizeSettings, "compare", ("output", "sequential", "parallel"), also="visualization"
    ),
    "report": StageKind(ReportSettings, ""),
    "deploy": StageKind(DeploySettings, "deploy", ("workdir", "output"), also="deployment", instead="export"),
}
NAME = Field("name", "name", str, "", (_NAME,), "the pipeline's name", fixed=False, names_module=False)


def settings_of(stage: str) -> dict[str, Field]:
    """The settings of a stage, by name without the stage's."""
    return {found.attribute: found for found in declarations(STAGES[stage].settings, f"{stage}.")}


def stage_name(section: str) -> str | None:
    """The stage that a section of a file is of; None if of none."""
    return next((name for name, kind in STAGES.items() if section and section in (name, kind.also)), None)


def build(stage: str, values: Mapping[str, Any]) -> Any:
    """The settings of a stage; raises ConfigError for a value of another type or against a rule."""
    fields = settings_of(stage)
    checked = {name: fields[name].check(value) for name, value in values.items()}
    found = STAGES[stage].settings(**checked)
    if getattr(found, "name", "") and not _NAME.holds(found.name):
        raise ConfigError(f"`{stage}.name` (={found.name!r}) must {_NAME.text}")
    return found
