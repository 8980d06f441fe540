"""Pgx's own trained models of games, from local files."""

from __future__ import annotations

import os
from collections.abc import Callable

import jax

from jaxrl.envs import modules
from jaxrl.envs.adapters.suite import load, suite_rules

# Games of two for which Pgx has published an AlphaZero policy.
GAMES = ("animal_shogi", "gardner_chess", "go_9x9", "hex", "othello")
# Below the current folder: the one that `pgx.make_baseline_model` downloads into.
FOLDER = "baselines"


def load_logits(game: str) -> Callable[[jax.Array], jax.Array]:
    """The policy of Pgx's model: the logits [A] of all moves, given one observation.

    Nothing is downloaded. The file is a pickle, which can run code as it is read.

    Args:
      game: one of `GAMES`.

    Raises:
      ValueError: one line; there is no such file, it cannot be read, or Haiku is not installed.
    """
    name = f"{game}_v0"
    file = os.path.join(FOLDER, f"{name}.ckpt")
    if not os.path.isfile(file):
        raise ValueError(
            f"pgx:{game}: baseline needs {file}, which is not there; "
            f"pgx.make_baseline_model({name!r}) downloads it"
        )
    pgx = load("pgx", "pgx")
    try:
        with suite_rules():
            model = pgx.make_baseline_model(name, FOLDER)
    except ImportError as error:
        raise ValueError(f"pgx:{game}: baseline needs Haiku: pip install dm-haiku ({error})") from error
    except Exception as error:
        raise ValueError(f"pgx:{game}: {file} is no model: {modules.one_line(error)}") from error

    def logits(obs: jax.Array) -> jax.Array:
        with suite_rules():
            found: jax.Array = model(obs[None])[0][0]
        return found

    return logits
