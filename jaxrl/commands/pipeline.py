"""jaxrl pipeline FILE: data, search, training, evaluation, report, deployment.

Runs the stages that FILE enables, each a few jaxrl commands, in a folder
NAME_TIMESTAMP. The same command continues after a kill, and repeats what has
changed and what depends on it. Exit code 3: a gate is closed. docs/pipeline.md
explains the file.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from jaxrl.commands import command_line, run_arguments
from jaxrl.commands.arguments import Argument, CommandArguments, flag
from jaxrl.commands.field_flags import ShortFlag
from jaxrl.config import text
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.config.fields import describe
from jaxrl.config.local_files import is_remote
from jaxrl.runs.signals import Interruption, catch_signals

if TYPE_CHECKING:
    from jaxrl.pipeline.definition import CommandFlags, FieldFlag, PipelineDefinition
    from jaxrl.pipeline.pipeline_folder import PipelineFolder
    from jaxrl.pipeline.plan import Planner
    from jaxrl.pipeline.stages import PipelineStage

_DEFAULT = "configs/pipeline_config.yaml"


class _Flags(CommandArguments):
    file = Argument(
        "FILE", "a pipeline (.yaml), or the name of a shipped one, such as navigation; or --config="
    )
    config: str | None = flag("--config=FILE", "")
    output: str = flag("--output=DIR", "where folders of pipelines are (default: {default})", "pipelines")
    workdir: str | None = flag(
        "--workdir=DIR", "the folder itself (default: the newest of this name in --output, or a new one)"
    )
    new: bool = flag("--new", "begin a new folder")
    only: str | None = flag("--only=STAGE", "run this stage alone; several with commas")
    first: str | None = flag("--from=STAGE", "leave out the stages before it")
    last: str | None = flag("--until=STAGE", "leave out the stages after it")
    force: str | None = flag("--force=STAGE", "run this stage though it is done; several with commas")
    dry_run: bool = flag("--dry-run", "print stages, reasons, commands and expected times, and run nothing")
    status: bool = flag("--status", "print what is done, and run nothing")


def _reference() -> str:
    from jaxrl.pipeline.settings import STAGES, settings_of

    lines = ["Settings, as FILE has them by stage:"]
    for field in (field for stage in STAGES for field in settings_of(stage).values()):
        if field.attribute == "enabled":
            kind = STAGES[field.section]
            named = " or ".join(filter(None, (kind.command, kind.instead)))
            takes = f"flags of jaxrl {named}" if named else "no flags"
            title = f"{field.section} (or {kind.also}): also {takes}" if kind.also else f"{field.section}:"
            lines += ["", title + ", fields" * kind.takes_fields]
        default = str(field.default).lower() if isinstance(field.default, bool) else repr(field.default)
        said = f"{field.help} ({describe(field.kind)}; default: {default})"
        wrapped = textwrap.wrap(said, 52, break_on_hyphens=False, break_long_words=False)
        lines += [f"  {field.name:<24}{wrapped[0]}", *(" " * 26 + line for line in wrapped[1:])]
    return "\n".join(lines)


@command_line.command(__doc__, _Flags, positional=True, reference=_reference)
def main(flags: _Flags, left: Sequence[str]) -> int:
    with catch_signals() as interruption:
        return _open([x for x in (flags.config, *left) if x], flags, interruption)


def _open(given: Sequence[str], flags: _Flags, interruption: Interruption) -> int:
    if len(given) != 1:
        named = " and ".join(f"`{name}`" for name in given) or "none"
        raise ConfigError(f"one `FILE` is to be named, such as {_DEFAULT}, not {named}")

    from jaxrl.pipeline import definition
    from jaxrl.pipeline.plan import Planner, StageSelection

    pipeline = definition.read(given[0], command_flags())
    folder = _folder(flags, pipeline)
    only, force = (tuple(filter(None, (given or "").split(","))) for given in (flags.only, flags.force))
    selection = StageSelection(only=only, force=force, first=flags.first, last=flags.last)
    planner = Planner(pipeline, folder, selection)
    _check_training(planner)
    if flags.dry_run or flags.status:
        _show(planner, folder, flags.output, commands=bool(flags.dry_run))
        return 0
    # With these it would begin anew.
    left_out = " and ".join(f"--{name}" for name in ("new", "force") if getattr(flags, name))
    again = f"the same command{left_out and f' without {left_out}'}"
    return _run(pipeline, folder, planner, interruption, again)


def _folder(flags: _Flags, pipeline: PipelineDefinition) -> PipelineFolder:
    from jaxrl.pipeline import pipeline_folder

    for name, given in (("output", flags.output), ("workdir", flags.workdir)):
        if is_remote(given or ""):
            raise ConfigError(f"`--{name}` (={given!r}) must be a local folder")
    if flags.workdir and flags.new:
        raise ConfigError("`--workdir` and `--new` both name a folder: leave one out")
    newest = None if flags.new else pipeline_folder.latest(flags.output, pipeline.name)
    path = flags.workdir or newest or pipeline_folder.new(flags.output, pipeline.name)
    command_line.require_writable_folder("workdir" if flags.workdir else "output", path)
    return pipeline_folder.PipelineFolder(path.rstrip("/") or path, pipeline.name)


def _run(
    pipeline: PipelineDefinition,
    folder: PipelineFolder,
    planner: Planner,
    interruption: Interruption,
    again: str,
) -> int:
    from jaxrl.pipeline.runner import PipelineDisplay, Runner

    folder.create(pipeline.text)
    display = PipelineDisplay(planner.selected, folder.root / f"{pipeline.name}.log")
    try:
        with folder.lock(display.message) as lock:
            display.message(f"pipeline {pipeline.name}: {', '.join(planner.selected)} in {folder.path}")
            Runner(pipeline, folder, planner, display, interruption, lock).run()
            if interruption.signum is not None:
                display.message(f"{interruption.name}: {again} continues the pipeline")
                return interruption.exit_code
            display.message(f"pipeline {pipeline.name} is done: {folder.path}")
    except Exception as error:
        display.log(f"error: {error}")  # It is printed where all errors of commands are.
        raise
    finally:
        display.close()
    return 0


def _show(planner: Planner, folder: PipelineFolder, output: str, commands: bool) -> None:
    """Prints the stages: what is done, what would be run and why, how long it may take, and its commands."""
    from jaxrl.pipeline.pipeline_folder import expected_seconds

    command_line.say(f"pipeline {folder.name} in {folder.path}{'' if folder.root.exists() else ' (new)'}")
    reasons = planner.reasons()
    width = max(map(len, planner.selected))
    for name in planner.selected:
        seconds = expected_seconds(output, folder.name, name, folder)
        expected = "unknown" if seconds is None else text.seconds(seconds)
        reason = reasons.get(name)
        said = f"to run, because {reason}" if reason else "done"
        command_line.say(f"  {name:<{width}}  {said}; time {expected}")
        if commands and reason:
            for step in planner.stages[name].steps:
                command_line.say(f"  {'':<{width}}    {step.line}")


def command_flags() -> CommandFlags:
    """The flags of the commands that stages run."""
    from jaxrl.commands import arguments_of
    from jaxrl.pipeline.definition import FieldFlag
    from jaxrl.pipeline.settings import STAGES

    training = {kind.command for kind in STAGES.values() if kind.takes_fields}
    others = {name for kind in STAGES.values() for name in (kind.command, kind.instead) if name}
    flags = {name: _flags_of(arguments_of(name), name in training) for name in training | others}
    fields = {name: flag for name, flag in flags["train"].items() if isinstance(flag, FieldFlag)}
    return {name: (fields if name in training else {}) | found for name, found in flags.items()}


def _flags_of(arguments: Sequence[Argument], takes_fields: bool) -> dict[str, type | FieldFlag]:
    from jaxrl.pipeline.definition import FieldFlag

    flags: dict[str, type | FieldFlag] = {}
    for argument in arguments:
        if isinstance(argument, ShortFlag):
            flags[argument.name] = FieldFlag(argument.field, argument.scale)
        elif argument.term == "--env=SUITE:NAME" and takes_fields:
            flags["env"] = FieldFlag("env.name")
        elif argument.kind is not None and argument.word and argument.name != "debug":
            flags[argument.name] = argument.kind
    return flags


def _check_training(planner: Planner) -> None:
    """Raises ConfigError, before hours pass, if a stage cannot train or its policy not play a suite."""
    stages = planner.stages
    for name in planner.selected:
        for step in stages[name].steps:
            follows = any(planner.places.folder in word for word in step.arguments[:-1])
            if step.command == "train" and not follows:
                with errors_as(ConfigError, f"`{name}`", ConfigError):
                    config = run_arguments.parse_training(["train", *step.arguments]).config
                _check_suites(stages, config)


def _check_suites(stages: Mapping[str, PipelineStage], config: ConfigDict) -> None:
    """Raises ConfigError if a policy of a configuration cannot play one of the suites that stages name."""
    from jaxrl.config import check_config
    from jaxrl.runs.executor import RunNames

    checked = check_config(config)
    words = [word for stage in stages.values() for step in stage.steps for word in step.arguments]
    suites = [word.removeprefix("--suite=") for word in words if word.startswith("--suite=")]
    playing = [replace(checked, evaluate=replace(checked.evaluate, suite=suite)) for suite in suites]
    if playing:
        with errors_as(ConfigError, "`evaluate.suites`", ConfigError):
            RunNames.of(playing)
