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

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxrl.commands import command_line, record
from jaxrl.commands.arguments import DEBUG, MINARI, SEED, TRUST, Argument, help_text, parse
from jaxrl.config import ConfigError
from jaxrl.config.common_names import full_name
from jaxrl.config.errors import RunError
from jaxrl.runs import storage

_WITH_LEVELS = "jaxrl:Platformer"
_MANY_LEVELS = 200
_SPELLINGS = (("env", "env-name"), ("output", "output-dir"))
_MOST_LEVELS = 100_000
_LARGEST_SEED = 2**31 - 1
_LEVELS = Argument(
    "--levels=N",
    "levels of jaxrl:Platformer to train on, over all categories (default: 200); a quarter as many more are "
    "for tests",
    int,
    high=_MOST_LEVELS,
)
ARGUMENTS = (
    Argument("--env=NAME", "the environment; or --env-name=NAME", str),
    Argument("--env-name=NAME", "", str),
    Argument("--output=DIR", "a new folder, or an empty one; or --output-dir=DIR", str),
    Argument("--output-dir=DIR", "", str),
    Argument(
        "--episodes=N", "episodes to record (default: 100)", int, low=1, high=command_line.MOST_EPISODES
    ),
    Argument("--workdir=RUN", "the run whose policy acts (default: actions at random)", str),
    record.PLAYER,
    Argument("--replays=DIR", "replays to simulate, or one file of them", str, ""),
    Argument("--successful", "leave out replays that end without success", bool),
    MINARI,
    _LEVELS,
    replace(SEED, help="of what is made (default: {default})", high=_LARGEST_SEED),
    TRUST,
    DEBUG,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Generates what `argv` asks for; returns the exit code (0 written, 1 it failed, 2 bad input)."""
    return command_line.run_job(help_text(__doc__, ARGUMENTS), _job, argv)


def _job(argv: Sequence[str]) -> int:
    values, _ = parse(ARGUMENTS, argv)
    env, output = (_one(values, name, other) for name, other in _SPELLINGS)
    workdir = str(values["workdir"] or "")
    if not (env or workdir):
        raise ConfigError("`--env` (='') is missing: name an environment, or with --workdir a run")
    if not output:
        raise ConfigError("`--output` is missing: name a new folder")
    env = full_name("--env", env)[0] if env else ""
    asked = workdir or values["player"] or values["replays"]
    if env == _WITH_LEVELS and not asked and values["episodes"] is None:
        return _levels(argv, output)
    if values["levels"] is not None:
        raise ConfigError(f"`--levels` (={values['levels']}) is for levels of {_WITH_LEVELS} alone")
    _require_one_player(values, workdir)
    if values["replays"]:
        return record.write_simulated(
            output=output,
            environment=env,
            replays=values["replays"],
            successful=values["successful"],
            minari=values["minari"],
        )
    if values["player"]:
        record.require_solver(values["player"])
        return record.record_solver(env, output, values["episodes"], values["seed"], values["minari"])
    if workdir:
        storage.require_run_folder("--workdir", workdir)
    return record.write_recording(
        output=output,
        episodes=values["episodes"] or record.DEFAULT_EPISODES,
        seed=values["seed"],
        workdir=workdir,
        environment=env,
        trust=values["trust"],
        minari=values["minari"],
    )


def _require_one_player(values: dict[str, Any], workdir: str) -> None:
    """Raises ConfigError if several say whose episodes these are, or one has no environment."""
    asked = {"--workdir": workdir, "--player": values["player"], "--replays": values["replays"]}
    given = [name for name, value in asked.items() if value]
    if len(given) > 1:
        raise ConfigError(f"`{given[0]}` and `{given[1]}` exclude each other: one of them acts")
    if given and given != ["--workdir"] and not (values["env"] or values["env-name"]):
        raise ConfigError(f"`--env` is missing: `{given[0]}` needs an environment")
    if values["replays"] and values["episodes"] is not None:
        raise ConfigError("`--episodes` is not for `--replays`: all of them are simulated")
    if values["successful"] and not values["replays"]:
        raise ConfigError("`--successful` is for `--replays` alone")


def _one(values: dict[str, Any], name: str, other: str) -> str:
    """The value of a flag of two spellings."""
    given = [str(values[x]) for x in (name, other) if values[x]]
    if len(given) > 1:
        raise ConfigError(f"`--{name}` and `--{other}` set the same: leave one out")
    return given[0] if given else ""


def _levels(argv: Sequence[str], output: str) -> int:
    from jaxrl.envs.native.platformer.generation import dataset
    from jaxrl.envs.native.platformer.level import CATEGORIES
    from jaxrl.envs.native.platformer.level_files import DatasetError

    # At least one of each category; to know how many there are takes an import of jax.
    levels_argument = dataclasses.replace(_LEVELS, low=len(CATEGORIES), default=_MANY_LEVELS)
    values, _ = parse([levels_argument if x is _LEVELS else x for x in ARGUMENTS], argv)
    folder = Path(output)
    try:
        counts = dataset.write_dataset(folder, values["levels"], values["seed"], _tell)
    except DatasetError as error:
        raise ConfigError(f"`--output` (={output!r}): {error}") from error
    except (OSError, RuntimeError) as error:
        raise RunError(f"{folder}: {error}") from error
    command_line.say(f"{sum(counts.values())} levels, each proven solvable: {folder}")
    command_line.say(f"to train on them:  jaxrl train --env=\"{_WITH_LEVELS}(levels='{folder}/train')\"")
    return 0


def _tell(place: str, done: int, of: int) -> None:
    if done == of:
        print(f"{place}: {of}", flush=True)
