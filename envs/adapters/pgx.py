"""Pgx (Koyamada et al. 2023), board games and MinAtar, as `JaxEnv` of a single agent."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import modules
from jaxrl.envs.adapters.suite import load, raw_key, suite_rules
from jaxrl.envs.base import Box, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.games import Game, players
from jaxrl.envs.names import changed_call
from jaxrl.envs.trees import strong_types

_RANDOM = "random"
_EITHER = -1

# (state, key) -> action
_Opponent = Callable[[Any, jax.Array], jax.Array]
# Games in which a player may move twice in a row, by the beginnings of their names.
_UNEVEN = ("backgammon", "leduc_holdem")
# The last move, which is no cell of the board.
_LAST_MOVES = {"go_9x9": "pass", "go_19x19": "pass", "hex": "swap", "othello": "pass"}
# Two-player games for which Pgx has published an AlphaZero policy.
GAMES = ("animal_shogi", "gardner_chess", "go_9x9", "hex", "othello")
# Below the current folder: the one that `pgx.make_baseline_model` downloads into.
FOLDER = "baselines"


def names() -> Sequence[str]:
    return tuple(load("pgx", "pgx").available_envs())


def module_of(name: str, arguments: Mapping[str, Any]) -> str | None:
    return players.module_of(arguments)


@flax.struct.dataclass
class PgxState:
    """The suite's own state; int32[], the agent's player; float32[], what it got before its first turn."""

    env: Any
    agent: jax.Array
    owed: jax.Array


class Pgx(JaxEnv):
    """A game as one of its players sees it: player 0, at a random seat, or a fixed seat.

    A step is the agent's move and the others' until it is the agent's turn again; the reward is what these
    moves gave the agent. The first step also has the reward of the moves before it: a game may be over by
    then, and its episode is that step, whatever the action. In games for several players `info["success"]`
    is whether the agent has won.

    Args:
      name: one of `names()`.
      opponent: who plays all other players: "random" samples allowed actions uniformly; in two-player games
        "greedy" samples the moves with the highest immediate reward, "mcts-N" searches, "baseline" is
        Pgx's own policy (`jaxrl.envs.games.players`); "path.to.module:function" is called with
        (observation, bool[A] of the allowed actions, key), of one game, and returns an action.
      seat: of the agent in two-player games: 0 begins, 1 does not, -1 lets the game choose at random.

    Attributes:
      game: the rules alone, of a two-player game; else None.
    """

    def __init__(self, name: str, opponent: str = _RANDOM, seat: int = _EITHER):
        label = f"pgx:{name}"
        with suite_rules():
            self._env = load("pgx", "pgx").make(name)
            self._is_alone = self._env.num_players == 1
            first = jax.eval_shape(lambda key: self._env.init(raw_key(key)), jax.random.key(0))
        obs, mask = first.observation, first.legal_action_mask
        low, high = (0, 1) if obs.dtype == bool else (-np.inf, np.inf)
        # Not uint8, which networks take for the brightness of a picture and divide by 255.
        self._dtype = jnp.float32 if obs.dtype == bool else obs.dtype
        self.spec = EnvSpec(
            name=changed_call(label, Pgx, locals()),
            observation_space=Box.of(low, high, obs.shape, np.dtype(self._dtype).type),
            action_space=Discrete(mask.shape[0]),
            has_action_mask=True,
            reports=() if self._is_alone else (InfoMetric("success", "last"),),
        )
        self.game = PgxGame(label, self._env, self.spec) if self._env.num_players == 2 else None
        self._opponent = _opponent(label, self.game, opponent)
        if seat not in (_EITHER, 0, 1) or isinstance(seat, bool):
            raise ValueError(f"{label}: seat (={seat!r}) must be 0, 1, or -1 for either")
        if self.game is None and seat != _EITHER:
            raise ValueError(f"{label}: seat (={seat!r}) is only of games of two")
        self._seat = seat

    def reset(self, key: jax.Array) -> tuple[PgxState, Any]:
        start_key, others_key = jax.random.split(key)
        with suite_rules():
            state = strong_types(self._env.init(raw_key(start_key)))
            agent = jnp.int32(0)
            if self._seat != _EITHER:
                agent = state.current_player.astype(jnp.int32) ^ self._seat
            state, owed = self._others(state, agent, others_key)
        return PgxState(state, agent, owed.astype(jnp.float32)), self._observe(state, agent)

    def step(self, key: jax.Array, before: PgxState, action: jax.Array) -> tuple[PgxState, TimeStep]:
        step_key, others_key = jax.random.split(key)
        with suite_rules():
            state = strong_types(self._env.step(before.env, action, raw_key(step_key)))
            reward = state.rewards[before.agent]
            state, more = self._others(state, before.agent, others_key)
            reward = (reward + more).astype(jnp.float32) + before.owed
        return PgxState(state, before.agent, jnp.zeros((), jnp.float32)), TimeStep(
            obs=self._observe(state, before.agent),
            reward=reward,
            terminated=state.terminated,
            truncated=state.truncated,
            info={} if self._is_alone else {"success": (state.terminated | state.truncated) & (reward > 0)},
        )

    def action_mask(self, state: PgxState) -> jax.Array:
        mask: jax.Array = state.env.legal_action_mask
        return mask | ~mask.any()

    def _others(self, state: Any, agent: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        """The state when it is the agent's turn or the game is over, and what the agent got until then."""
        nothing = jnp.zeros((), state.rewards.dtype)
        if self._is_alone:
            return state, nothing

        def waits(loop: tuple[Any, jax.Array, jax.Array]) -> jax.Array:
            state, *_ = loop
            return (state.current_player != agent) & ~state.terminated & ~state.truncated

        def move(loop: tuple[Any, jax.Array, jax.Array]) -> tuple[Any, jax.Array, jax.Array]:
            state, reward, key = loop
            key, choice_key, step_key = jax.random.split(key, 3)
            action = self._opponent(state, choice_key)
            state = strong_types(self._env.step(state, action, raw_key(step_key)))
            return state, reward + state.rewards[agent], key

        state, reward, _ = jax.lax.while_loop(waits, move, (state, nothing, key))
        return state, reward

    def _observe(self, state: Any, agent: jax.Array) -> jax.Array:
        if self._is_alone:
            return state.observation.astype(self._dtype)
        with suite_rules():  # at an end it may be another's turn, whose view the state holds
            obs = self._env._observe(state, agent)
        return obs.astype(self._dtype)


make = Pgx


def _opponent(label: str, game: PgxGame | None, name: str) -> _Opponent:
    if name == _RANDOM:
        return lambda state, key: players.evenly(key, state.legal_action_mask)
    if game is not None:
        player = players.make(label, game, name)
        # Nobody asks for a seat: the player to move chooses.
        return lambda state, key: player(PgxGameState(state, jnp.int32(0)), key)
    found = modules.load_attribute(f"{label}: opponent", name)
    if not callable(found) or isinstance(found, type):
        raise ValueError(f"{label}: opponent (={name!r}) must be random or name a function")
    return lambda state, key: found(state.observation, state.legal_action_mask, key)


@flax.struct.dataclass
class PgxGameState:
    """The suite's own state, and int32[], the player who has seat 0: the suite samples who begins."""

    env: Any
    first: jax.Array


class PgxGame(Game):
    """The rules of the two-player game `label`, such as "pgx:hex"; `spec` is of one player's view of it."""

    def __init__(self, label: str, env: Any, spec: EnvSpec):
        self._env = env
        assert isinstance(spec.observation_space, Box)
        self._dtype = spec.observation_space.dtype
        self.spec = dataclasses.replace(spec, name=label, reports=())
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
    """The policy of Pgx's model for one of `GAMES`: the logits [A] of all moves, given one observation.

    Nothing is downloaded. The file is a pickle, which can run code as it is read. ValueError, one line:
    there is no such file, it cannot be read, or Haiku is not installed.
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
