"""jaxrl experiment: trains architectures on the same levels and compares them.

Cells (architecture, with or without pretraining, seed) run one after the other,
or concurrently with --jobs, each as jaxrl train in its own folder. Results,
decision matrix and report.html are in OUTPUT_DIR/NAME_TIMESTAMP. An interrupted
experiment continues with --resume-from; finished cells are not run again
(docs/architectures.md).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from jaxrl.commands import command_line, resumption
from jaxrl.commands.arguments import Argument, CommandArguments, flag, group
from jaxrl.config import ConfigError
from jaxrl.config.fields import declarations
from jaxrl.experiments.experiment_options import (
    ExperimentOptions,
    fields_of,
    flag_of,
    from_mapping,
    read_options,
)
from jaxrl.runs.signals import Interruption, catch_signals

if TYPE_CHECKING:
    from jaxrl.config import Config
    from jaxrl.experiments.cells import ExperimentPlan

_DECLARED = {declared.attribute: declared for declared in declarations(ExperimentOptions)}
_SECONDS = 1.0  # of training each architecture, for an estimate
_LISTS = ("architectures", "seeds")  # several words may follow the flag


def _argument(name: str) -> Argument:
    declared = _DECLARED[name]
    kinds = [declared.kind, *get_args(declared.kind)]
    kind = next((k for k in (bool, int, float) if k in kinds and name not in _LISTS), str)
    default = ", ".join(map(str, declared.default)) if name in _LISTS else declared.default
    shown = "" if default in ("", (), None, False) else f" (default: {default})"
    value = "A,B" if name in _LISTS else kind.__name__[0].upper()
    term = flag_of(name) if kind is bool else f"{flag_of(name)}={value}"
    return Argument(term, f"{declared.help}{shown}", kind)


class _Flags(CommandArguments):
    file = Argument("FILE", "all of it in one YAML file, by the names of the flags; flags come before it")
    options: dict[str, Any] = group(
        *(_argument(name) for name in _DECLARED if name != "trace_level"),
        Argument("--num-gpus=N", kind=int),
        Argument("--distributed-backend=B", kind=str),
    )
    resume_from: str | None = flag("--resume-from=DIR", "the folder of an experiment that ended early")
    dry_run: bool = flag("--dry-run", "only list the cells, with parameters, memory and estimated hours")
    debug: bool = flag("--debug", "full tracebacks, and a log of all that happens")


def _job(argv: Sequence[str]) -> int:
    flags, left = _Flags.parse(_join_lists(argv), positional=True)
    with catch_signals() as interruption:
        return _open(flags, left, interruption, shlex.join(["experiment", *argv[1:]]))


main = command_line.Command(__doc__, _Flags.arguments(), _job)


def _open(flags: _Flags, left: Sequence[str], interruption: Interruption, command: str) -> int:
    words = {
        name: _value_of(name, x) for name, x in flags.options.items() if x is not None and x is not False
    }
    given = fields_of({**words, "debug": flags.debug}, "jaxrl experiment")
    if len(left) > 1:
        raise ConfigError(f"`{left[1]}` is no flag; there is one file of options")

    from jaxrl.experiments.cells import ExperimentFolder

    if resumed := flags.resume_from:
        if left or given.keys() - {"trace_level"}:
            raise ConfigError("`--resume-from` continues with the stored options: leave the others out")
        folder, stored = ExperimentFolder.open(resumed)
        options = from_mapping({**stored, **given}, resumed)
    else:
        options = from_mapping({**(read_options(left[0]) if left else {}), **given}, "jaxrl experiment")
        folder = ExperimentFolder.new(options.output_dir, options.experiment_name)
    from jaxrl.experiments.cells import ExperimentPlan

    plan = ExperimentPlan.of(options, folder.path)
    if flags.dry_run:
        command_line.say(f"{len(plan.cells)} cells of {', '.join(options.architectures)}")
        for cell in plan.cells:
            command_line.say(f"  {cell.name}")
    _require(plan)
    return show_estimates(plan) if flags.dry_run else _run(options, folder, interruption, command)


def _join_lists(argv: Sequence[str]) -> list[str]:
    """`--architectures a b c` as `--architectures=a,b,c`."""
    found: list[str] = []
    open_list = False
    for argument in argv:
        if argument in (flag_of(name) for name in _LISTS):
            found.append(f"{argument}=")
            open_list = True
        elif open_list and not argument.startswith("-"):
            found[-1] += argument if found[-1].endswith("=") else f",{argument}"
        else:
            found.append(argument)
            open_list = False
    return found


def _value_of(name: str, value: Any) -> Any:
    """Lists of words and of numbers, out of text with commas."""
    name = name.replace("-", "_")
    if name not in _LISTS:
        return value
    words = [word.strip() for word in str(value).split(",") if word.strip()]
    if name != "seeds":
        return words
    try:
        return [int(word) for word in words]
    except ValueError as error:
        raise ConfigError(f"`--seeds` (={value!r}) must be integers with commas between them") from error


def _require(plan: ExperimentPlan) -> None:
    """Raises ConfigError for devices, a bucket or demonstrations with which a cell would fail."""
    from jaxrl.experiments.results import read_results
    from jaxrl.runs import storage
    from jaxrl.runs.executor import visible_gpus

    options = plan.options
    devices = options.num_devices or 1
    if options.num_envs % devices:
        raise ConfigError(f"`--num-devices` (={devices}) must divide `--num-envs` (={options.num_envs})")
    gpus = [] if options.ray_address or not options.num_devices else visible_gpus()
    if gpus and devices > len(gpus):
        raise ConfigError(
            f"`--num-devices` (={devices}) is more than this machine has: GPUs {', '.join(gpus)}"
        )
    if options.bucket:
        storage.open_url("--s3-bucket", plan.copy, writable=True)
    cells = [cell for cell in plan.cells if cell.pretrains and read_results(cell) is None]
    if cells:
        _require_demonstrations(options.replay_data_dir, plan.config(cells[0], with_suite=False))


def _require_demonstrations(folder: str, config: Config) -> None:
    from jaxrl.training.cloning import read_demonstrations

    try:
        read_demonstrations("--replay-data-dir", folder, config)
    except ConfigError as error:
        again = f'jaxrl prepare-data --env="{config.env.name}" --player=solver --output=DIR'
        raise ConfigError(f"{error}; to record what fits: {again}") from error


def _run(options: ExperimentOptions, folder: Any, interruption: Interruption, command: str) -> int:
    from jaxrl.experiments.experiment import run
    from jaxrl.experiments.page import sentences, table
    from jaxrl.reporting.display import table as display

    command_line.say(f"experiment in {folder.path}")
    matrix, failures = run(options, folder, interruption, command_line.say, command)
    headings, rows = table(matrix)
    display.show(headings, rows, names=1)
    command_line.say(" ".join(sentences(matrix)))
    page = folder.path / "report.html"
    written = page if page.exists() else folder.path / "decision_matrix.md"
    command_line.say(f"written to {written}")
    if interruption.signum is not None:
        again = shlex.join([*resumption.jaxrl(), "experiment", f"--resume-from={folder.path}"])
        print(f"{interruption.name}: {again} continues", file=sys.stderr)
        return interruption.exit_code
    for name, why in failures.items():
        command_line.complain(f"{name} failed: {why}")
    return command_line.FAILED if failures else 0


def show_estimates(plan: ExperimentPlan) -> int:
    """Prints what training each architecture would cost, from a second of training one of its cells."""
    import jax

    from jaxrl.config import text
    from jaxrl.diagnostics import architectures
    from jaxrl.reporting.display import table

    if plan.options.num_devices == 0:
        jax.config.update("jax_platforms", "cpu")  # it is this process that measures
    plan.require_networks()
    names = plan.options.architectures
    rows, total = [], 0.0
    for number, name in enumerate(names, 1):
        command_line.measuring(name, number, len(names))
        cells = [cell for cell in plan.cells if cell.architecture == name]
        cost = architectures.training_cost(plan.config(cells[0], with_suite=False), _SECONDS)
        hours = len(cells) * plan.options.total_timesteps / cost.steps_per_second / 3600
        total += hours
        memory = "" if cost.memory is None else text.size(cost.memory)
        rows.append((name, str(len(cells)), f"{cost.parameters:,}", memory, f"{hours:.2f}"))
    table.show(("architecture", "cells", "parameters", "memory", "hours"), rows, names=1)
    one_by_one = "one cell after the other, without evaluations and pretraining"
    command_line.say(f"{total:.2f} hours of training in all, {one_by_one}")
    return 0
