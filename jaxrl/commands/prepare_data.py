"""jaxrl prepare-data --env=NAME --output=DIR: records episodes, or makes levels.

Episodes of any environment, with actions at random, of the policy of a run, of
the environment's solver or of replays: DIR/NNNNNN.npz, an episode each, and
last DIR/manifest.json with the length, return and digest of each
(docs/imitation.md). Of jaxrl:Platformer it makes levels instead, unless
--episodes, --workdir, --player or --replays asks for episodes.

Replays are simulated again: *.npz with actions and level_id or seed, or what
jaxrl play --record has written. A replay with a wrong claim about its end is
dropped and named.

Levels: DIR/{train,test}/CATEGORY/NNNN.json and, last, DIR/manifest.json with
the category, seed, size, optimal steps and digest of each level. A search
through all states of the game proves each level solvable and finds its optimal
steps. No two levels are equal. The same seed and number make the same files.
A level takes about a tenth of a second, of the category exploration about one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jaxrl.commands import command_line, record
from jaxrl.commands.arguments import MINARI, SEED, TRUST, CommandArguments, flag
from jaxrl.config import ConfigError
from jaxrl.config.environment import full_name
from jaxrl.config.errors import RunError, errors_as
from jaxrl.config.fields import between, check
from jaxrl.runs import storage

_WITH_LEVELS = "jaxrl:Platformer"
_MANY_LEVELS = 200
_MOST_LEVELS = 100_000
_LARGEST_SEED = 2**31 - 1


class _Flags(CommandArguments):
    env: str | None = flag("--env=NAME", "the environment; or --env-name=NAME")
    env_name: str | None = flag("--env-name=NAME", "")
    output: str | None = flag("--output=DIR", "a new folder, or an empty one; or --output-dir=DIR")
    output_dir: str | None = flag("--output-dir=DIR", "")
    episodes: int | None = flag(
        "--episodes=N", "episodes to record (default: 100)", within=(1, command_line.MOST_EPISODES)
    )
    workdir: str | None = flag("--workdir=RUN", "the run whose policy acts (default: actions at random)")
    player: str | None = record.PLAYER
    replays: str = flag("--replays=DIR", "replays to simulate, or one file of them", "")
    successful: bool = flag("--successful", "leave out replays that end without success")
    minari: bool = MINARI
    levels: int | None = flag(
        "--levels=N",
        "levels of jaxrl:Platformer to train on, over all categories (default: 200); a quarter as many more "
        "are for tests",
    )
    seed: int = replace(SEED, help="of what is made (default: {default})", within=(0, _LARGEST_SEED))
    trust: bool = TRUST


@command_line.command(__doc__, _Flags)
def main(flags: _Flags, _: Sequence[str]) -> int:
    env = _one("env", flags.env, flags.env_name, "env-name")
    output = _one("output", flags.output, flags.output_dir, "output-dir")
    workdir = str(flags.workdir or "")
    if not (env or workdir):
        raise ConfigError("`--env` (='') is missing: name an environment, or with --workdir a run")
    if not output:
        raise ConfigError("`--output` is missing: name a new folder")
    env = full_name("--env", env)[0] if env else ""
    asked = workdir or flags.player or flags.replays
    if env == _WITH_LEVELS and not asked and flags.episodes is None:
        return _levels(output, flags.levels, flags.seed)
    if flags.levels is not None:
        raise ConfigError(f"`--levels` (={flags.levels}) is for levels of {_WITH_LEVELS} alone")
    _require_one_player(flags)
    if flags.replays:
        return record.write_simulated(
            output=output,
            environment=env,
            replays=flags.replays,
            successful=flags.successful,
            minari=flags.minari,
        )
    if flags.player:
        return record.record_solver(flags.player, env, output, flags.episodes, flags.seed, flags.minari)
    if workdir:
        storage.require_run_folder("--workdir", workdir)
    return record.write_recording(
        output=output,
        episodes=flags.episodes or record.DEFAULT_EPISODES,
        seed=flags.seed,
        workdir=workdir,
        environment=env,
        trust=flags.trust,
        minari=flags.minari,
    )


def _require_one_player(flags: _Flags) -> None:
    """Raises ConfigError if several flags name the player, or one has no environment."""
    asked = {"--workdir": flags.workdir, "--player": flags.player, "--replays": flags.replays}
    given = [name for name, value in asked.items() if value]
    if len(given) > 1:
        raise ConfigError(f"`{given[0]}` and `{given[1]}` exclude each other: one of them acts")
    if given and given != ["--workdir"] and not (flags.env or flags.env_name):
        raise ConfigError(f"`--env` is missing: `{given[0]}` needs an environment")
    if flags.replays and flags.episodes is not None:
        raise ConfigError("`--episodes` is not for `--replays`: all of them are simulated")
    if flags.successful and not flags.replays:
        raise ConfigError("`--successful` is for `--replays` alone")


def _one(name: str, first: str | None, second: str | None, other: str) -> str:
    """The value of a flag of two spellings."""
    if first and second:
        raise ConfigError(f"`--{name}` and `--{other}` set the same: leave one out")
    return first or second or ""


def _levels(output: str, levels: int | None, seed: int) -> int:
    from jaxrl.envs.native.platformer.level import CATEGORIES
    from jaxrl.envs.native.platformer.level_files import DatasetError, write_dataset

    # At least one of each category; to know how many there are takes an import of jax.
    count = _MANY_LEVELS if levels is None else levels
    check("--levels", count, int, between(len(CATEGORIES), _MOST_LEVELS))
    folder = Path(output)
    given = f"`--output` (={output!r})"
    with errors_as(RunError, folder, OSError, RuntimeError), errors_as(ConfigError, given, DatasetError):
        counts = write_dataset(folder, count, seed, _tell)
    command_line.say(f"{sum(counts.values())} levels, each proven solvable: {folder}")
    command_line.say(f"to train on them:  jaxrl train --env=\"{_WITH_LEVELS}(levels='{folder}/train')\"")
    return 0


def _tell(place: str, done: int, of: int) -> None:
    if done == of:
        print(f"{place}: {of}", flush=True)
