"""The commands of each stage of a pipeline, what it reads of other stages, and what it makes."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl.config import flatten
from jaxrl.config.files import load_config, shipped_file
from jaxrl.pipeline.definition import PipelineDefinition
from jaxrl.pipeline.digests import FILE, PRESENT, RESULT, RUN, TREE, StageOutput, StagePlaces
from jaxrl.runs.clones import failed_check

# Kinds of shipped files, by the setting that may name one.
_SHIPPED = {"config": "configs", "suites": "suites", "curriculum": "curricula"}


@dataclasses.dataclass(frozen=True)
class Step:
    """One command of a stage.

    Attributes:
      starts_from: a folder that it must not find from an interrupted attempt; "" if it continues it.
      result: the name of the file, in the stage's folder, that takes the output that the command names.
    """

    command: str
    arguments: tuple[str, ...]
    starts_from: str = ""
    result: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        return ("jaxrl", self.command, *self.arguments)

    @property
    def line(self) -> str:
        """The command as it is typed in a shell."""
        return shlex.join(self.words)


@dataclasses.dataclass(frozen=True)
class PipelineStage:
    """A stage that can be run.

    Attributes:
      reads: stages whose outputs it reads.
      files: local files and folders that it reads, by the setting that names them.
      outputs: the values that others may read of it, by name.
      texts: files that are written before its first command, by path.
    """

    name: str
    steps: tuple[Step, ...]
    reads: tuple[str, ...] = ()
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    outputs: Mapping[str, StageOutput] = dataclasses.field(default_factory=dict)
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)


def build(pipeline: PipelineDefinition, places: StagePlaces) -> dict[str, PipelineStage]:
    """The enabled stages of a pipeline, in order."""
    found = _Builder(pipeline, places)
    return {name: getattr(found, name)() for name in pipeline.enabled}


class _Builder:
    """Builds stages; a method for each."""

    def __init__(self, pipeline: PipelineDefinition, places: StagePlaces) -> None:
        self._pipeline = pipeline
        self._places = places
        self._enabled = pipeline.enabled

    def data(self) -> PipelineStage:
        settings, flags, _ = self._section("data")
        folder = self._places.data
        steps = [Step("prepare-data", (*flags, f"--output={folder}"), starts_from=folder)]
        if settings.verify:
            steps.append(Step("verify-data", (f"--data={folder}",)))
        return PipelineStage("data", tuple(steps), outputs={"data.folder": StageOutput(TREE, folder)})

    def search(self) -> PipelineStage:
        import yaml

        settings, flags, fields = self._section("search")
        trained, _, train_fields = self._section("train")
        config = self._with_places(settings.config or trained.config)
        texts: dict[str, str] = {}
        space = self._with_places(settings.space)
        if (given := self._pipeline.sections["search"].space) is not None:
            space = f"{self._places.folder}/search/space.yaml"
            texts[space] = yaml.safe_dump(dict(given), sort_keys=False)
        arguments = (config, f"--space={space}", *flags, *_field_flags({**train_fields, **fields}))
        step = Step("search", (*arguments, f"--workdir={self._places.study}"))
        return PipelineStage(
            "search",
            (step,),
            self._reads(arguments),
            self._files({"config": config, "space": "" if texts else space}),
            {"search.config": StageOutput(FILE, self._places.winner)},
            texts,
        )

    def pretrain(self) -> PipelineStage:
        settings, flags, fields = self._section("pretrain")
        _, _, train_fields = self._section("train")
        config = self._with_places(settings.config) or self._config()
        data = self._with_places(settings.data)
        arguments = (config, f"--data={data}", *flags, *_field_flags({**train_fields, **fields}))
        run = self._places.run("pretrain")
        return PipelineStage(
            "pretrain",
            (Step("pretrain", (*arguments, f"--workdir={run}")),),
            self._reads(arguments),
            self._files({"config": config, "data": "" if data == self._places.data else data}),
            {"pretrain.run": StageOutput(RUN, run)},
        )

    def train(self) -> PipelineStage:
        _, flags, fields = self._section("train")
        config = self._config()
        if "search" in self._enabled:
            fields = self._restore(fields)
        if "pretrain" in self._enabled and not failed_check(self._places.run("pretrain")):
            fields = {"init_from": self._places.run("pretrain"), **fields}
        arguments = (config, *flags, *_field_flags(fields))
        run = self._places.run()
        named = {"config": config, "curriculum.file": str(fields.get("curriculum.file", ""))}
        return PipelineStage(
            "train",
            (Step("train", (*arguments, f"--workdir={run}")),),
            self._reads(arguments),
            self._files(named),
            {"train.run": StageOutput(RUN, run)},
        )

    def evaluate(self) -> PipelineStage:
        settings, flags, _ = self._section("evaluate")
        run = self._places.run()
        checkpoint = f"--checkpoint={settings.checkpoint}"
        steps = [
            Step(
                "evaluate",
                (run, f"--episodes={settings.episodes}", checkpoint, *self._way_of_model(flags), *flags),
                result="episodes.json",
            )
        ]
        suites = [self._with_places(suite) for suite in settings.suites]
        for number, suite in enumerate(suites, start=1):
            steps.append(
                Step("evaluate", (run, f"--suite={suite}", checkpoint, *flags), result=f"suite-{number}.json")
            )
        folder = f"{self._places.folder}/evaluate"
        outputs = {
            f"evaluate.{step.result}": StageOutput(RESULT, f"{folder}/{step.result}") for step in steps
        }
        files = {f"suites.{number}": suite for number, suite in enumerate(suites, start=1)}
        return PipelineStage("evaluate", tuple(steps), ("train",), self._files(files), outputs)

    def _way_of_model(self, flags: Sequence[str]) -> tuple[str, ...]:
        """The way in which the policy plays for gates: as the model that is deployed, if there is one."""
        asked = {"--sample", "--greedy"} & {*flags}
        draws = self._pipeline.sections["deploy"].settings.format == "stablehlo"
        return ("--greedy",) if "deploy" in self._enabled and not draws and not asked else ()

    def visualize(self) -> PipelineStage:
        settings, flags, _ = self._section("visualize")
        run = self._places.run()
        folder = f"{self._places.folder}/visualize"
        steps = []
        outputs = {}
        if settings.curves:
            picture = f"{folder}/curves.png"
            steps.append(Step("compare", (run, *flags, f"--output={picture}")))
            outputs["visualize.curves"] = StageOutput(FILE, picture)
        for seed in settings.seeds:
            film = f"{folder}/episode-{seed}.gif"
            about = (f"--seed={seed}", f"--checkpoint={settings.checkpoint}")
            steps.append(Step("evaluate", (run, "--episodes=0", *about, f"--video={film}")))
            outputs[f"visualize.episode-{seed}"] = StageOutput(FILE, film)
        return PipelineStage("visualize", tuple(steps), ("train",), {}, outputs)

    def report(self) -> PipelineStage:
        before = self._enabled[: self._enabled.index("report")]
        folder = self._places.folder
        pages = ["report.html"] + ["report.pdf"] * self._pipeline.sections["report"].settings.pdf
        outputs = {f"report.{page}": StageOutput(FILE, f"{folder}/{page}") for page in pages}
        return PipelineStage("report", (), before, {}, outputs)

    def deploy(self) -> PipelineStage:
        settings, flags, _ = self._section("deploy")
        run = self._places.run()
        checkpoint = f"--checkpoint={settings.checkpoint}"
        name = settings.name or self._pipeline.name
        kind = settings.format or "onnx"
        command = self._pipeline.sections["deploy"].command
        if command == "deploy":
            model = f"{settings.to}/{name}"
            about = (f"--to={settings.to}", f"--name={name}", checkpoint)
        else:
            model = f"{settings.to}/{name}/{kind}"
            about = (f"--format={kind}", checkpoint, f"--output={model}")
        reads = tuple(name for name in ("train", "evaluate") if name in self._enabled)
        # Others may deploy there later, which is no reason to put this model in its place again.
        outputs = {"deploy.model": StageOutput(PRESENT, model)}
        return PipelineStage("deploy", (Step(command, (run, *about, *flags)),), reads, {}, outputs)

    def _section(self, stage: str) -> tuple[Any, tuple[str, ...], dict[str, Any]]:
        """(settings, flags as arguments, fields) of a stage, with the places of `{...}` filled in."""
        section = self._pipeline.sections[stage]
        fields = {
            name: self._with_places(x) if isinstance(x, str) else x for name, x in section.fields.items()
        }
        flags = []
        for name, value in section.flags.items():
            if value is True:
                flags.append(f"--{name}")
            elif value is not False:
                flags.append(f"--{name}={self._with_places(str(value))}")
        return section.settings, tuple(flags), fields

    def _config(self) -> str:
        """The config that is trained: the winner of the search, if there is one."""
        if "search" in self._enabled:
            return self._places.winner
        return self._with_places(self._pipeline.sections["train"].settings.config)

    def _restore(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that the search sets for its trials alone, as training has them.

        The winner's config holds all other fields of training already.
        """
        trials = self._pipeline.sections["search"]
        settings = self._pipeline.sections["train"].settings
        config = flatten(load_config(self._with_places(trials.settings.config or settings.config)).to_dict())
        before = {name: fields.get(name, config.get(name)) for name in trials.fields}
        return {name: "none" if value is None else value for name, value in before.items()}

    def _with_places(self, text: str) -> str:
        for name, place in self._places.names.items():
            text = text.replace(name, place)
        return text

    def _reads(self, arguments: Iterable[str]) -> tuple[str, ...]:
        """The enabled stages whose outputs arguments name."""
        said = "\n".join(arguments)
        places = {
            "data": self._places.data,
            "search": self._places.winner,
            "pretrain": self._places.run("pretrain"),
        }
        return tuple(name for name, place in places.items() if place in said and name in self._enabled)

    def _files(self, named: Mapping[str, str]) -> dict[str, str]:
        """The local files that settings name, also of shipped configs, suites and curricula."""
        found = {}
        for name, value in named.items():
            if not value or value.startswith(f"{self._places.folder}/"):
                continue  # Outputs of stages count by their own digests.
            kind = _SHIPPED.get(name.partition(".")[0])
            path = shipped_file(value, kind) if kind else value
            if os.path.exists(path):
                found[name] = path
        return found


def _field_flags(fields: Mapping[str, Any]) -> tuple[str, ...]:
    given = {name: tuple(x) if isinstance(x, list) else x for name, x in fields.items() if x is not None}
    return tuple(f"--config.{name}={value}" for name, value in given.items())


def model_folder(pipeline: PipelineDefinition) -> Path:
    """The folder of the deployed model, with all its formats."""
    settings = pipeline.sections["deploy"].settings
    return Path(settings.to) / (settings.name or pipeline.name)
