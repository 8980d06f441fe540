"""`--resume`: which run to continue, with which configuration, and the commands for a run that has ended."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from jaxrl.config import (
    Config,
    ConfigError,
    changed_fields,
    check_config,
    default_config,
    from_json,
    words,
)
from jaxrl.config.construction import require_trusted
from jaxrl.config.data_files import read_object
from jaxrl.config.declarations import values_of
from jaxrl.config.errors import errors_as
from jaxrl.runs import storage

if TYPE_CHECKING:
    from jaxrl.training.run import RunOutcome

RUNS = "runs"  # where runs without --workdir go
_FLAG = "--resume"
_CHECKPOINTS = "checkpoints"  # of a run
_FOLDERS = ("--workdir", "--output-dir")


def split(argv: Sequence[str]) -> tuple[list[str], str | None]:
    """The arguments without `--resume`, and its folder: "" is the latest run, None without the flag."""
    mine = [x for x in argv if x == _FLAG or x.startswith(f"{_FLAG}=")]
    others = [x for x in argv if x not in mine]
    if len(mine) > 1:
        raise ConfigError(f"`{_FLAG}` comes twice: {' '.join(mine)}")
    if mine == [f"{_FLAG}="]:
        raise ConfigError(f"`{_FLAG}=` needs a folder; `{_FLAG}` alone takes the latest run")
    return others, mine[0].removeprefix(_FLAG).removeprefix("=") if mine else None


def run_of(path: str) -> str:
    """The folder of a run, if `path` is this folder or one of its checkpoints."""
    path = os.path.expanduser(path.rstrip("/"))
    parent = os.path.dirname(path)
    return os.path.dirname(parent) if os.path.basename(parent) == _CHECKPOINTS else path


def name_of(folder: str) -> str:
    """The name of runs that continue `folder`: CONFIG of `runs/CONFIG/NAME`, else the folder's."""
    *_, above, parent, name = ["", "", *os.path.abspath(folder).split(os.sep)]
    return parent if above == RUNS else name


def stored_steps(folder: str) -> list[str]:
    """The steps of a local folder of checkpoints, ascending; none if it is no such folder."""
    if os.path.basename(folder) != _CHECKPOINTS or not os.path.isdir(folder):
        return []
    return sorted((name for name in os.listdir(folder) if name.isdecimal()), key=int)


def stored_config(folder: str, flag: str = _FLAG) -> ConfigDict:
    """The configuration of the run `folder`, to be changed and resolved again.

    Raises ConfigError if there is no run, or config.json is damaged or names modules (a command line may).
    """
    stored = _read_config(folder, flag)
    try:
        require_trusted(stored, folder)
    except ConfigError as error:
        raise ConfigError(
            f"`{flag}` (={folder}): its configuration names modules, which are only imported if the "
            "command line names them: jaxrl train CONFIG --env=MODULE:CLASS --config.FIELD=MODULE:NAME "
            f"{flag}={folder}"
        ) from error
    given = default_config(stored.algorithm)
    for field, value in values_of(stored):
        target = given[field.section] if field.section else given
        target[field.name.rpartition(".")[2]] = value
    return given


def latest() -> str:
    """The run below `runs/` that was last written to; ConfigError if there is none."""
    runs = _newest_first("")
    if not runs:
        raise ConfigError(f"`{_FLAG}`: there is no run in {os.path.join(RUNS, '')}; name its folder")
    return str(runs[0])


def latest_of(name: str, config: ConfigDict) -> str:
    """The last run of the config `name` with this task, network and seed; ConfigError if there is none."""
    checked = check_config(config)
    first = ""
    for folder in _newest_first(name):
        try:
            changed = changed_fields(_read_config(str(folder)), checked)
        except ConfigError as error:
            changed = [str(error)]
        if not changed:
            return str(folder)
        first = first or f": the latest, {folder}, has {', '.join(changed)}"
    raise ConfigError(f"`{_FLAG}`: there is no run of this config in {os.path.join(RUNS, name)}{first}")


def require_run(folder: str, flag: str = _FLAG) -> None:
    """Raises ConfigError unless the local or gs:// `folder`, which `flag` names, holds a run."""
    if storage.is_remote(folder):
        storage.require_run_folder(flag, folder)
    elif not os.path.exists(os.path.join(folder, "config.json")):
        found = words.in_place_of_run(folder) or "holds no run: there is no config.json"
        raise ConfigError(f"`{flag}` (={folder}) {found}")


def command(argv: Sequence[str], folder: str) -> str:
    """The command that continues the run in `folder`, for a shell, from the arguments that trained it."""
    module = str(argv[0]).endswith("main.py")
    program = [python(), "-m", "jaxrl.main"] if module else [*jaxrl(), "train"]
    return shlex.join([*program, *without_folder(argv), f"{_FLAG}={folder}"])


def without_folder(argv: Sequence[str]) -> list[str]:
    """The arguments of a training, without the ones that name its folder."""
    arguments = []
    left = iter(split(argv)[0][1:])
    for argument in left:
        if argument in _FOLDERS:
            next(left, None)
        elif not argument.startswith(tuple(f"{flag}=" for flag in _FOLDERS)):
            arguments.append(argument)
    return arguments


def next_steps(outcome: RunOutcome, argv: Sequence[str]) -> Iterator[str]:
    """Yields the lines that a run prints at its end: where it is, and what can be done with it."""
    folder = outcome.folder
    program = jaxrl()
    yield f"run folder:  {folder}"
    if outcome.resumable:
        yield f"resume:      {command(argv, folder)}"
        return
    evaluate = [*program, "evaluate", f"--workdir={folder}"]
    # The module is the user's own: they have just trained with it.
    yield f"evaluate:    {shlex.join(evaluate + ['--trust'] * outcome.needs_trust)}"
    yield f"watch:       {shlex.join([*program, 'watch', folder])}"
    if outcome.has_tensorboard and importlib.util.find_spec("tensorboard"):
        logs = os.path.join(folder, "tensorboard")
        yield f"tensorboard: {shlex.join(['tensorboard', f'--logdir={logs}'])}"


def jaxrl() -> list[str]:
    """The words that call this installation from this shell."""
    return ["jaxrl"] if _is_beside_us(shutil.which("jaxrl")) else [python(), "-m", "jaxrl"]


def python() -> str:
    """This interpreter, as short as the shell finds it."""
    # Not the file behind a link: that is one for all environments made from one Python.
    return "python" if _is_beside_us(shutil.which("python"), follow=False) else sys.executable


def _is_beside_us(program: str | None, follow: bool = True) -> bool:
    """True of a program of this interpreter's environment; `follow` resolves a link to it, as pipx makes."""
    if program is None:
        return False
    folder = os.path.dirname(os.path.realpath(program) if follow else program)
    return os.path.samefile(folder, os.path.dirname(sys.executable))


def _read_config(folder: str, flag: str = _FLAG) -> Config:
    file = os.path.join(folder, "config.json")
    require_run(folder, flag)
    if storage.is_remote(folder):
        from jaxrl.runs.folder import RunFolder

        return RunFolder(folder).read_config()
    with errors_as(ConfigError, f"`{flag}` (={folder}): config.json cannot be read", OSError, ValueError):
        data = read_object(file)
    return from_json(data)


def _newest_first(name: str) -> list[Path]:
    pattern = "*/config.json" if name else "*/*/config.json"
    runs = (file.parent for file in Path(RUNS, name).glob(pattern))

    def time(run: Path) -> float:
        written = (run / file for file in ("config.json", "metrics.jsonl", "train.log"))
        return max((file.stat().st_mtime for file in written if file.exists()), default=0.0)

    return sorted(runs, key=time, reverse=True)
