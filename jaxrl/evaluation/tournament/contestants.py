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

        Args:
          acting: of the contestant.
          states: of the games, leaves [E, ...].
          carry: before the moves.
          fresh: bool[E], True if it is its first move of a game.
          keys: one for each game.
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
      agent: acts.
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


@dataclass(frozen=True)
class EntryTerms:
    """The conditions under which contestants are read.

    Attributes:
      game: the environment whose game is played; "" takes the first run's.
      label: the name that the user has for the game, for errors.
      checkpoint: of runs that do not name one by `RUN@STEP`.
      samples: True if policies sample their moves.
      trust: import the modules that runs name, see `jaxrl.config.construction`.
    """

    game: str = ""
    label: str = "--game"
    checkpoint: str = "best"
    samples: bool = True
    trust: bool = False


def enter(names: Sequence[str], entry: EntryTerms) -> list[Contestant]:
    """The contestants of a tournament, in the order given.

    Args:
      names: folders of runs, `RUN@latest` or `RUN@STEP` for another checkpoint, or names of scripted players.

    Raises:
      ConfigError: one is neither, is no policy of a two-player game, or plays another game than the others.
    """
    runs = {name: _load(name, entry) for name in names if os.path.isdir(_folder(name)[0])}
    environments = [entry.game] if entry.game else [run.config.env.name for run in runs.values()]
    if not environments:
        listed = ", ".join(names)
        raise ConfigError(f"none of {listed} is the folder of a run: `{entry.label}` must name the game")
    game = _game_of(entry.label if entry.game else next(iter(runs)), environments[0])
    if game is None:
        raise ConfigError(f"{environments[0]} is not a two-player game")
    for name, run in runs.items():
        _require_same(name, run, game)
    contestants: list[Contestant] = []
    for name in names:
        if name in runs:
            run = runs[name]
            samples = entry.samples and run.agent.samples
            contestants.append(Trained(name, game, run.agent, run.state, samples, run.checkpoint))
        elif players.is_scripted(game, name):
            with errors_as(ConfigError, "", ValueError):
                contestants.append(Scripted(name, game, players.make(game.spec.name, game, name)))
        else:
            raise ConfigError(
                f"{name!r} is neither the folder of a run nor a player of {game.spec.name}: "
                f"{', '.join(players.names(game))}"
            )
    return contestants


def _folder(name: str) -> tuple[str, str]:
    """(folder, checkpoint or "") of `RUN@CHECKPOINT`."""
    folder, at, checkpoint = name.rpartition("@")
    return (folder, checkpoint) if at and os.path.isdir(folder) else (name, "")


def _load(name: str, entry: EntryTerms) -> trained_policy.TrainedPolicy:
    folder, checkpoint = _folder(name)
    return trained_policy.load(folder, checkpoint or entry.checkpoint, devices=1, trust=entry.trust)


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
