"""Tasks of memory, `jaxrl:memory/NAME`: POPGym's (Morad et al. 2023), and a T-maze (docs/memory.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxrl.envs.base import JaxEnv
from jaxrl.envs.native.memory import bandit, boards, control, labyrinth
from jaxrl.envs.native.memory import card_games as games

PREFIX = "memory/"

_Arguments = Mapping[str, Any]
# What Easy, Medium and Hard are, as in the `popgym` package.
_NOISY: tuple[_Arguments, ...] = ({"noise_sigma": 0.1}, {"noise_sigma": 0.2}, {"noise_sigma": 0.3})
_CARTPOLE: tuple[_Arguments, ...] = tuple({"max_episode_length": n} for n in (200, 400, 600))
_MAZES: tuple[_Arguments, ...] = tuple({"maze_dims": (n, n)} for n in (10, 14, 18))
_DECKS: tuple[_Arguments, ...] = ({"num_decks": 1}, {"num_decks": 2}, {"num_decks": 3})
_LEVELS: Mapping[Callable[..., JaxEnv], tuple[_Arguments, ...]] = {
    games.Autoencode: _DECKS,
    boards.Battleship: ({"board_size": 8}, {"board_size": 10}, {"board_size": 12}),
    boards.Concentration: (
        {"deck_type": "colors"},
        {"num_decks": 2, "deck_type": "colors"},
        {"deck_type": "ranks"},
    ),
    games.CountRecall: (
        {"deck_type": "colors"},
        {"num_decks": 2, "deck_type": "suits"},
        {"num_decks": 4, "deck_type": "ranks"},
    ),
    games.HigherLower: _DECKS,
    labyrinth.LabyrinthEscape: _MAZES,
    labyrinth.LabyrinthExplore: _MAZES,
    boards.MineSweeper: ({"difficulty": "easy"}, {"difficulty": "medium"}, {"difficulty": "hard"}),
    bandit.MultiarmedBandit: tuple({"num_bandits": 10 * i, "episode_length": 200 * i} for i in (1, 2, 3)),
    control.NoisyPositionOnlyCartPole: _NOISY,
    control.NoisyPositionOnlyPendulum: _NOISY,
    control.PositionOnlyCartPole: _CARTPOLE,
    control.PositionOnlyPendulum: tuple({"max_episode_length": n} for n in (200, 150, 100)),
    games.RepeatFirst: ({"num_decks": 1}, {"num_decks": 8}, {"num_decks": 16}),
    games.RepeatPrevious: ({}, {"num_decks": 2, "k": 32}, {"num_decks": 3, "k": 64}),
    control.VelocityOnlyCartPole: _CARTPOLE,
}


def _level(task: Callable[..., JaxEnv], name: str, arguments: _Arguments) -> Callable[[], JaxEnv]:
    def make() -> JaxEnv:
        env = task(**arguments)
        env.spec = dataclasses.replace(env.spec, name=f"jaxrl:{name}")
        return env

    return make


def _environments() -> dict[str, Callable[..., JaxEnv]]:
    found: dict[str, Callable[..., JaxEnv]] = {f"{PREFIX}TMaze": labyrinth.TMaze}
    for task, levels in _LEVELS.items():
        name = f"{PREFIX}{task.__name__}"
        found[name] = task
        for level, arguments in zip(("Easy", "Medium", "Hard"), levels, strict=True):
            found[name + level] = _level(task, name + level, arguments)
    return found


# Each task with its arguments, and its three levels, which take none.
ENVIRONMENTS = _environments()
