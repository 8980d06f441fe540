"""jaxrl verify-data --data=DIR: checks every episode or level of a folder.

Of episodes: arrays, lengths, spaces, numbers that are not finite, and the
digests in the manifest; of replays a sample is simulated again. Of levels:
reads each, compares it with the manifest and plays its solution. Exit code 0:
all are as written; 1: the first fault, with its file; 2: bad input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl.commands import command_line
from jaxrl.commands.arguments import CommandArguments, flag
from jaxrl.config.errors import ConfigError, RunError, errors_as

_PICKLES, _HDF5 = (".pkl", ".pickle"), (".hdf5", ".h5")  # refused with the remedy, and read


class _Flags(CommandArguments):
    data: str | None = flag(
        "--data=DIR",
        "what jaxrl prepare-data or jaxrl record has written, or a file of D4RL's layout; or --data-dir=DIR",
    )
    data_dir: str | None = flag("--data-dir=DIR", "")
    env: str = flag(
        "--env=NAME", "the environment of episodes (default: the one that the manifest names)", ""
    )
    simulate: int = flag(
        "--simulate=N",
        "how many episodes of replays are simulated again (default: {default})",
        20,
        within=(0, command_line.MOST_EPISODES),
    )


@command_line.command(__doc__, _Flags)
def main(flags: _Flags, _: Sequence[str]) -> int:
    given = str(flags.data or flags.data_dir or "")
    if not given:
        raise ConfigError("`--data` is missing: name a folder that jaxrl prepare-data has written")
    folder = Path(given)
    is_file = folder.suffix in _PICKLES or (folder.suffix in _HDF5 and folder.is_file())
    if not is_file and not folder.is_dir():
        raise ConfigError(f"`--data` (={given!r}) is no folder")
    from jaxrl.evaluation.recordings import check_episodes

    checked = check_episodes(folder, flags.env, flags.simulate)
    return _levels(folder) if checked is None else _show(*checked)


def _show(found: Mapping[str, Any], simulated: int, is_compared: bool) -> int:
    print(f"episodes  {found['episodes']}, {found['steps']:,} steps")
    for label in ("length", "return"):
        low, mean, high = found[label]
        print(f"{label:<9} {mean:.2f}, from {low:g} to {high:g}")
    if "success" in found:
        print(f"success   {found['success']:.1%}")
    command_line.say(f"players   {', '.join(found['players']) or 'unknown'}")
    if simulated:
        print(f"simulated {simulated} of {found['episodes']} again: all are as written")
    if unmarked := found.get("unmarked_ends"):
        print(f"note      {unmarked} of {found['episodes']} end without a mark: taken as cut off there")
    state = "as written" if is_compared else "complete"
    print(f"all are {state}, finite, and of the environment's spaces")
    return 0


def _levels(folder: Path) -> int:
    from jaxrl.envs.native.platformer.level_files import DatasetError, verify_dataset

    with errors_as(RunError, "", DatasetError):
        counts = verify_dataset(folder)
    for place, count in counts.items():
        print(f"{place}: {count}")
    print(f"{sum(counts.values())} levels are as written, and their solutions solve them")
    return 0
