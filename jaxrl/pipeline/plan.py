"""The plan of a pipeline: the stages that are to be run, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxrl.config import ConfigError, versions
from jaxrl.config.errors import did_you_mean, errors_as
from jaxrl.pipeline import digests, stages
from jaxrl.pipeline.definition import PipelineDefinition
from jaxrl.pipeline.pipeline_folder import DONE, PipelineFolder, StageRecord, difference
from jaxrl.pipeline.stages import PipelineStage


@dataclasses.dataclass(frozen=True)
class StageSelection:
    """The stages that a user asks for; None or () for no restriction.

    Attributes:
      first: this one and later ones.
      last: this one and earlier ones.
      force: these are run though they are done.
    """

    only: tuple[str, ...] = ()
    first: str | None = None
    last: str | None = None
    force: tuple[str, ...] = ()

    def of(self, enabled: tuple[str, ...]) -> tuple[str, ...]:
        """The chosen ones among enabled stages; raises ConfigError for a name that is none of them."""
        flags = {"only": self.only, "from": (self.first,), "until": (self.last,), "force": self.force}
        for flag, names in flags.items():
            for name in filter(None, names):
                if name not in enabled:
                    hint = did_you_mean(name, enabled)
                    raise ConfigError(f"`--{flag}` (={name!r}) is no stage that is enabled{hint}")
        start = enabled.index(self.first) if self.first else 0
        end = enabled.index(self.last) + 1 if self.last else len(enabled)
        if start >= end:
            raise ConfigError(f"`--from` (={self.first}) comes after `--until` (={self.last})")
        return tuple(name for name in enabled[start:end] if not self.only or name in self.only)


class Planner:
    """Compares the stages of a pipeline with the records in its folder."""

    def __init__(
        self, pipeline: PipelineDefinition, folder: PipelineFolder, selection: StageSelection
    ) -> None:
        """Raises ConfigError for a selection of missing stages."""
        self.places = digests.StagePlaces(folder.path)
        self.selected = selection.of(pipeline.enabled)
        self._pipeline = pipeline
        self._folder = folder
        self._force = selection.force
        self._versions = versions()

    @property
    def stages(self) -> dict[str, PipelineStage]:
        """The enabled stages, in order; what one is made of may depend on what another has made."""
        return stages.build(self._pipeline, self.places)

    def inputs(self, stage: PipelineStage) -> dict[str, dict[str, Any]]:
        """The settings, files and versions that a stage is made from now.

        Raises:
          ConfigError: a file cannot be read.
        """
        sections = self._pipeline.sections
        own = sections[stage.name].to_json()
        settings = {f"{stage.name}.{name}": x for name, x in own.items()}
        if stage.name in ("search", "pretrain"):  # A search or imitation follows the training's settings.
            trained = sections["train"].to_json()
            settings |= {
                f"train.{name}": x for name, x in trained.items() if name not in own or not own[name]
            }
        files = {}
        for name, path in stage.files.items():
            with errors_as(ConfigError, f"`{stage.name}.{name}` (={path}) cannot be read", OSError):
                files[name] = digests.of_path(path)
        read = (self.stages[name].outputs for name in stage.reads)
        made = {output: found.digest() for outputs in read for output, found in outputs.items()}
        return {"settings": settings, "files": files, "outputs": made, "versions": dict(self._versions)}

    def reason(self, stage: PipelineStage, again: Mapping[str, str] | None = None) -> str:
        """The reason why a stage is to be run; "" if it is done. Stages in `again` will be run before it."""
        record = self._folder.records.get(stage.name)
        if record is None:
            return "it has not been run"
        before = [name for name in stage.reads if name in (again or {})]
        if before:
            return f"{before[0]} is run again"
        if found := difference(record.inputs, self.inputs(stage)):
            return found
        if record.state != DONE:
            return f"it {'failed' if record.problem else 'was interrupted'}"
        for name, output in stage.outputs.items():
            if (digest := output.digest()) != record.outputs.get(name):
                return f"its {name} {'is missing' if digest is None else 'has changed'}"
        return "--force" if stage.name in self._force else ""

    def continues(self, stage: PipelineStage) -> StageRecord | None:
        """The record of an attempt that did not end, from the same inputs; None if it begins anew."""
        record = self._folder.records.get(stage.name)
        if record is None or record.state == DONE or difference(record.inputs, self.inputs(stage)):
            return None
        return record

    def require_inputs(self, stage: PipelineStage) -> None:
        """Raises ConfigError if a stage that is not run has not made this one's inputs."""
        for name in stage.reads:
            for output, found in self.stages[name].outputs.items():
                if found.digest() is None:
                    raise ConfigError(
                        f"`{stage.name}` reads {output} ({found.path}), which is not there: run {name}"
                    )

    def reasons(self) -> dict[str, str]:
        """The reason why each of the selected stages is to be run, by name; without finished ones."""
        again: dict[str, str] = {}
        for name in self.selected:
            if found := self.reason(self.stages[name], again):
                again[name] = found
        return again
