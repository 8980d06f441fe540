"""The contestants of a tournament: trained policies and scripted players."""

from __future__ import annotations

import abc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms import Agent
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.envs import registry
from jaxrl.envs.games import Game, game_of, players
from jaxrl.evaluation import trained_policy
from jaxrl.types import Array, PyTree


class Contestant(abc.ABC):
    """A player of many games of one kind at once.

    Attributes:
      acting: the parameters that decide its moves, an argument of compiled programs; () of a scripted player.
    """

    name: str
    game: Game
    acting: PyTree

    @abc.abstractmethod
    def initial_carry(self, count: int) -> PyTree:
        """Its memory of each of so many games before the first move."""

    @abc.abstractmethod
    def move(
        self, acting: PyTree, states: PyTree, carry: PyTree, fresh: Array, keys: Array
    ) -> tuple[Array, PyTree]:
        """(its moves int32[E], the carries after them), in games where it has the turn.

        `acting` is its own; leaves of `states` and `carry` are [E, ...], before the moves, with a key for
        each game; `fresh`, bool[E], is True if it is its first move of a game.
        """


@dataclass(frozen=True, eq=False)
class Scripted(Contestant):
    """A player of `jaxrl.envs.games.players`."""

    name: str
    game: Game
    player: players.Player
    acting: PyTree = ()

    def initial_carry(self, count: int) -> PyTree:
        return ()

    def move(
        self, acting: PyTree, states: PyTree, carry: PyTree, fresh: Array, keys: Array
    ) -> tuple[Array, PyTree]:
        return jax.vmap(self.player)(states, keys), carry


@dataclass(frozen=True, eq=False)
class Trained(Contestant):
    """A policy, with a recurrent carry of its own in each game.

    Attributes:
      samples: samples its moves, as in training; else it takes the best ones.
      checkpoint: which one of its run, in words.
    """

    name: str
    game: Game
    agent: Agent
    acting: PyTree
    samples: bool = True
    checkpoint: str = ""

    def initial_carry(self, count: int) -> PyTree:
        return self.agent.initial_carry(count)

    def move(
        self, acting: PyTree, states: PyTree, carry: PyTree, fresh: Array, keys: Array
    ) -> tuple[Array, PyTree]:
        obs = jax.vmap(lambda state: self.game.observe(state, self.game.seat(state)))(states)
        mask = jax.vmap(self.game.choices)(states)
        out = self.agent.forward(acting, obs, carry, fresh, mask)
        if self.samples:
            action, _ = self.agent.choose(out, jax.vmap(lambda key: self.agent.draw_noise(key, ()))(keys))
        else:
            action = self.agent.greedy(out)
        return self.agent.to_env(action).astype(jnp.int32), out.carry


def enter(
    names: Sequence[str],
    game: str = "",
    label: str = "--game",
    checkpoint: str = "best",
    samples: bool = True,
    trust: bool = False,
) -> list[Contestant]:
    """The contestants of a tournament, in the order given.

    Args:
      names: folders of runs, `RUN@latest` or `RUN@STEP` for another checkpoint, or names of scripted players.
      game: the environment whose game is played; "" takes the first run's.
      label: the name that the user has for the game, for errors.
      checkpoint: of runs that do not name one.
      samples: True if policies sample their moves.
      trust: import the modules that runs name, see `jaxrl.config.construction`.

    Raises:
      ConfigError: one is neither, is no policy of a two-player game, or plays another game than the others.
    """
    runs = {}
    for name in names:
        folder, _, chosen = name.rpartition("@")
        if not os.path.isdir(folder):
            folder, chosen = name, ""
        if os.path.isdir(folder):
            runs[name] = trained_policy.load(folder, chosen or checkpoint, devices=1, trust=trust)
    if not game and not runs:
        raise ConfigError(f"none of {', '.join(names)} is the folder of a run: `{label}` must name the game")
    environment = game or next(iter(runs.values())).config.env.name
    played = _game_of(label if game else next(iter(runs)), environment)
    if played is None:
        raise ConfigError(f"{environment} is not a two-player game")
    for name, run in runs.items():
        _require_same(name, run, played)
    contestants: list[Contestant] = []
    for name in names:
        if name in runs:
            run = runs[name]
            draws = samples and run.agent.samples
            contestants.append(Trained(name, played, run.agent, run.state, draws, run.checkpoint))
        elif players.is_scripted(played, name):
            with errors_as(ConfigError, "", ValueError):
                contestants.append(Scripted(name, played, players.make(played.spec.name, played, name)))
        else:
            raise ConfigError(
                f"{name!r} is neither the folder of a run nor a player of {played.spec.name}: "
                f"{', '.join(players.names(played))}"
            )
    return contestants


def _game_of(label: str, environment: str) -> Game | None:
    with errors_as(ConfigError, f"`{label}`", ValueError, ImportError):
        return game_of(registry.make(environment))


def _require_same(name: str, run: trained_policy.TrainedPolicy, game: Game) -> None:
    own = _game_of(name, run.config.env.name)
    if own is None:
        raise ConfigError(f"{name} is a policy of {run.config.env.name}, which is not a two-player game")
    spaces: Any = (own.spec.observation_space, own.spec.action_space)
    if own.spec.name != game.spec.name or spaces != (game.spec.observation_space, game.spec.action_space):
        raise ConfigError(f"{name} plays {own.spec.name}, and not {game.spec.name} as the others do")
    if run.config.env.wrappers:
        raise ConfigError(
            f"{name} is a policy of {run.config.env.name} with wrappers, which see one seat alone"
        )
