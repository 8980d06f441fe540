"""jaxrl prepare-data --env=NAME --output=DIR: generates levels, each solvable.

Writes DIR/{train,test}/CATEGORY/NNNN.json and, last, DIR/manifest.json with the
category, seed, size, optimal steps and digest of each level. A search through
all states of the game proves each level solvable and finds its optimal steps.
No two levels are equal. The same seed and number make the same files. The
category exploration takes about 10 seconds a level, the others less than one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from jaxrl.commands import command_line
from jaxrl.commands.arguments import DEBUG, Argument, help_text, parse
from jaxrl.config import ConfigError
from jaxrl.config.errors import RunError

_ENVIRONMENT = "jaxrl:Platformer"
_MOST_LEVELS, _LARGEST_SEED = 100_000, 2**31 - 1
_LEVELS = Argument(
    "--levels=N",
    "levels to train on, over all categories (default: {default}); a quarter as many more are for tests",
    int,
    200,
    high=_MOST_LEVELS,
)
ARGUMENTS = (
    Argument("--env=NAME", "whose levels: jaxrl:Platformer", str),
    Argument("--output=DIR", "a new folder, or an empty one", str),
    _LEVELS,
    Argument("--seed=K", "of the first level (default: {default})", int, 0, low=0, high=_LARGEST_SEED),
    DEBUG,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Generates what `argv` asks for; returns the exit code (0 written, 1 it failed, 2 bad input)."""
    return command_line.run_job(help_text(__doc__, ARGUMENTS), _job, argv)


def _job(argv: Sequence[str]) -> int:
    from jaxrl.envs.native.platformer.generation import dataset
    from jaxrl.envs.native.platformer.level import CATEGORIES
    from jaxrl.envs.native.platformer.level_files import DatasetError

    # At least one of each category; to know how many there are takes an import of jax.
    levels_argument = dataclasses.replace(_LEVELS, low=len(CATEGORIES))
    values, _ = parse([levels_argument if x is _LEVELS else x for x in ARGUMENTS], argv)
    env, output = (str(values[name] or "") for name in ("env", "output"))
    if env != _ENVIRONMENT:
        raise ConfigError(f"`--env` (={env!r}) must be {_ENVIRONMENT}: only its levels are data")
    if not output:
        raise ConfigError("`--output` is missing: name a new folder")
    folder = Path(output)
    try:
        counts = dataset.write_dataset(folder, values["levels"], values["seed"], _tell)
    except DatasetError as error:
        raise ConfigError(f"`--output` (={output!r}): {error}") from error
    except (OSError, RuntimeError) as error:
        raise RunError(f"{folder}: {error}") from error
    command_line.say(f"{sum(counts.values())} levels, each proven solvable: {folder}")
    command_line.say(f"to train on them:  jaxrl train --env=\"{_ENVIRONMENT}(levels='{folder}/train')\"")
    return 0


def _tell(place: str, done: int, of: int) -> None:
    if done == of:
        print(f"{place}: {of}", flush=True)
