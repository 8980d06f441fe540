"""The rules of Pgx's two-player games, and its own trained models of them, from local files."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs import modules
from jaxrl.envs.adapters.suite import load, raw_key, suite_rules
from jaxrl.envs.base import Box, Discrete, EnvSpec
from jaxrl.envs.games.game import Game
from jaxrl.envs.trees import strong_types

# Games in which a player may move twice in a row, by the beginnings of their names.
_UNEVEN = ("backgammon", "leduc_holdem")
# The last move, which is no cell of the board.
_LAST_MOVES = {"go_9x9": "pass", "go_19x19": "pass", "hex": "swap", "othello": "pass"}
# Two-player games for which Pgx has published an AlphaZero policy.
GAMES = ("animal_shogi", "gardner_chess", "go_9x9", "hex", "othello")
# Below the current folder: the one that `pgx.make_baseline_model` downloads into.
FOLDER = "baselines"


@flax.struct.dataclass
class PgxGameState:
    """The suite's own state, and int32[], the player who has seat 0: the suite samples who begins."""

    env: Any
    first: jax.Array


class PgxGame(Game):
    """The rules of a two-player game of the suite.

    Args:
      label: the full name, such as "pgx:hex".
      env: of the suite.
      spec: of the environment that shows one of its players, with these spaces.
    """

    def __init__(self, label: str, env: Any, spec: EnvSpec):
        self._env = env
        assert isinstance(spec.observation_space, Box)
        self._dtype = spec.observation_space.dtype
        self.spec = EnvSpec(
            name=label,
            observation_space=spec.observation_space,
            action_space=spec.action_space,
            max_episode_steps=spec.max_episode_steps,
            has_action_mask=True,
        )
        name = label.removeprefix("pgx:")
        self.alternates = not name.startswith(_UNEVEN)
        if name in GAMES:
            self.load_baseline = functools.partial(load_logits, name)
        if name in _LAST_MOVES:
            assert isinstance(spec.action_space, Discrete)
            self.move_names = {int(spec.action_space.n) - 1: _LAST_MOVES[name]}

    def start(self, key: jax.Array) -> PgxGameState:
        with suite_rules():
            state = strong_types(self._env.init(raw_key(key)))
        return PgxGameState(state, state.current_player.astype(jnp.int32))

    def play(self, key: jax.Array, state: PgxGameState, action: jax.Array) -> PgxGameState:
        with suite_rules():
            after = strong_types(self._env.step(state.env, action, raw_key(key)))
        return PgxGameState(after, state.first)

    def seat(self, state: PgxGameState) -> jax.Array:
        return state.env.current_player.astype(jnp.int32) ^ state.first

    def observe(self, state: PgxGameState, seat: jax.Array) -> Any:
        with suite_rules():
            obs = self._env._observe(state.env, seat ^ state.first)
        return obs.astype(self._dtype)

    def action_mask(self, state: PgxGameState) -> jax.Array:
        return state.env.legal_action_mask

    def rewards(self, state: PgxGameState) -> jax.Array:
        rewards = state.env.rewards.astype(jnp.float32)
        return jnp.stack([rewards[state.first], rewards[1 - state.first]])

    def ends(self, state: PgxGameState) -> tuple[jax.Array, jax.Array]:
        return state.env.terminated, state.env.truncated


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
