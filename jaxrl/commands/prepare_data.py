"""jaxrl prepare-data --env=NAME --output=DIR: generates levels, each solvable.

  --env=NAME     whose levels: jaxrl:Platformer
  --output=DIR   a new folder, or an empty one
  --levels=N     levels to train on, over all categories (default: 200); a
                 quarter as many more are for tests
  --seed=K       of the first level (default: 0)
  --debug        full tracebacks instead of one line for bad input

Writes DIR/{train,test}/CATEGORY/NNNN.json and, last, DIR/manifest.json with the
category, seed, size, optimal steps and digest of each level. A search through
all states of the game proves each level solvable and finds its optimal steps.
No two levels are equal. The same seed and number make the same files. The
category exploration takes about 10 seconds a level, the others less than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from jaxrl.commands import command_line
from jaxrl.config import ConfigError
from jaxrl.config.errors import RunError

_ENVIRONMENT = "jaxrl:Platformer"
_MOST_LEVELS, _LARGEST_SEED = 100_000, 2**31 - 1


def main(argv: Sequence[str] | None = None) -> int:
    """Generates what `argv` asks for; returns the exit code (0 written, 1 it failed, 2 bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    from envs.native.platformer import dataset
    from envs.native.platformer.level import CATEGORIES

    values = flags.FlagValues()
    flags.DEFINE_string("env", None, "Whose levels.", flag_values=values)
    flags.DEFINE_string("output", None, "Where to.", flag_values=values)
    flags.DEFINE_integer("levels", 200, "How many.", len(CATEGORIES), _MOST_LEVELS, flag_values=values)
    flags.DEFINE_integer("seed", 0, "Of the first.", 0, _LARGEST_SEED, flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    command_line.parse_flags(values, argv)
    env, output = (str(values[name].value or "") for name in ("env", "output"))
    if env != _ENVIRONMENT:
        raise ConfigError(f"`--env` (={env!r}) must be {_ENVIRONMENT}: only its levels are data")
    if not output:
        raise ConfigError("`--output` is missing: name a new folder")
    folder = Path(output)
    levels, seed = (int(values[name].value or 0) for name in ("levels", "seed"))
    try:
        counts = dataset.write_dataset(folder, levels, seed, _tell)
    except dataset.DatasetError as error:
        raise ConfigError(f"`--output` (={output!r}): {error}") from error
    except (OSError, RuntimeError) as error:
        raise RunError(f"{folder}: {error}") from error
    print(f"{sum(counts.values())} levels, each proven solvable: {folder}")
    print(f"to train on them:  jaxrl train --env=\"{_ENVIRONMENT}(levels='{folder}/train')\"")
    return 0


def _tell(place: str, done: int, of: int) -> None:
    if done == of:
        print(f"{place}: {of}", flush=True)
