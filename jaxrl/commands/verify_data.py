"""jaxrl verify-data --data=DIR: checks every episode or level of a folder.

Of episodes: arrays, lengths, spaces, numbers that are not finite, and the
digests in the manifest; of replays a sample is simulated again. Of levels:
reads each, compares it with the manifest and plays its solution. Exit code 0:
all are as written; 1: the first fault, with its file; 2: bad input.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxrl.commands import command_line
from jaxrl.commands.arguments import DEBUG, Argument, help_text, parse
from jaxrl.config import ConfigError, environment_spec
from jaxrl.config.common_names import full_name
from jaxrl.config.errors import RunError

if TYPE_CHECKING:
    from jaxrl.experience.demonstrations.dataset import Dataset

ARGUMENTS = (
    Argument("--data=DIR", "what jaxrl prepare-data or jaxrl record has written; or --data-dir=DIR", str),
    Argument("--data-dir=DIR", "", str),
    Argument("--env=NAME", "the environment of episodes (default: the one that the manifest names)", str, ""),
    Argument(
        "--simulate=N",
        "how many episodes of replays are simulated again (default: {default})",
        int,
        20,
        low=0,
        high=command_line.MOST_EPISODES,
    ),
    DEBUG,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Verifies what `argv` names; returns the exit code (0 intact, 1 at fault, 2 bad input)."""
    return command_line.run_job(help_text(__doc__, ARGUMENTS), _job, argv)


def _job(argv: Sequence[str]) -> int:
    values, _ = parse(ARGUMENTS, argv)
    given = str(values["data"] or values["data-dir"] or "")
    if not given:
        raise ConfigError("`--data` is missing: name a folder that jaxrl prepare-data has written")
    folder = Path(given)
    if folder.suffix not in (".pkl", ".pickle") and not folder.is_dir():
        raise ConfigError(f"`--data` (={given!r}) is no folder")
    from jaxrl.experience.demonstrations.dataset import is_dataset

    if folder.is_file() or is_dataset(folder):
        env = full_name("--env", values["env"])[0] if values["env"] else ""
        return _episodes(folder, env, values["simulate"])
    return _levels(folder)


def _episodes(folder: Path, env: str, simulate: int) -> int:
    from jaxrl.experience.demonstrations.dataset import (
        DatasetFault,
        environment_of,
        is_simulated,
        read_dataset,
    )

    try:
        named, wrappers = environment_of(folder) if folder.is_dir() else (env, ())
        name = env or named
        if not name:
            raise ConfigError("`--env` is missing: the manifest names no environment")
        from jaxrl.envs import registry
        from jaxrl.envs import wrappers as known_wrappers
        from jaxrl.parallel.tpu_slices import hush_libtpu

        hush_libtpu()
        # Names from a file that may come from anyone: their modules are not imported.
        foreign = [x for x in wrappers if known_wrappers.module_of(x) is not None]
        if foreign or (not env and registry.module_of(name) is not None):
            named_module = foreign[0] if foreign else name
            raise ConfigError(f"{folder} names the module of {named_module!r}, which is not imported")
        spec = environment_spec("--env", name, name, wrappers)
        dataset = read_dataset(str(folder), spec, verify=True)
        found = dataset.summary()
        again = _simulated_again(name, dataset, simulate) if is_simulated(folder) else 0
    except DatasetFault as error:
        raise RunError(str(error)) from error
    print(f"episodes  {found['episodes']}, {found['steps']:,} steps")
    for label in ("length", "return"):
        low, mean, high = found[label]
        print(f"{label:<9} {mean:.2f}, from {low:g} to {high:g}")
    if "success" in found:
        print(f"success   {found['success']:.1%}")
    command_line.say(f"players   {', '.join(found['players']) or 'unknown'}")
    if again:
        print(f"simulated {again} of {found['episodes']} again: all are as written")
    print("all are as written, finite, and of the environment's spaces")
    return 0


def _simulated_again(env: str, dataset: Dataset, count: int) -> int:
    """Simulates some episodes again, evenly from all; returns how many."""
    from jaxrl.experience.demonstrations.dataset import DatasetFault
    from jaxrl.experience.demonstrations.episode import EpisodeFault
    from jaxrl.experience.demonstrations.simulation import Simulator

    simulator, total = Simulator(env), len(dataset.episodes)
    chosen = sorted({i * total // count for i in range(count)})
    for i in chosen:
        try:
            simulator.verify(dataset.episodes[i])
        except EpisodeFault as error:
            raise DatasetFault(f"{Path(dataset.folder) / dataset.files[i]}: {error}") from error
    return len(chosen)


def _levels(folder: Path) -> int:
    from jaxrl.envs.native.platformer.generation import dataset
    from jaxrl.envs.native.platformer.level_files import DatasetError

    try:
        counts = dataset.verify_dataset(folder)
    except DatasetError as error:
        raise RunError(str(error)) from error
    for place, count in counts.items():
        print(f"{place}: {count}")
    print(f"{sum(counts.values())} levels are as written, and their solutions solve them")
    return 0
