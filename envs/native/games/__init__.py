"""This project's own two-player games."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jaxrl.envs.base import JaxEnv
from jaxrl.envs.games import players
from jaxrl.envs.games.game_env import GameEnv
from jaxrl.envs.native.games.probe_game import ProbeGame
from jaxrl.envs.native.games.tic_tac_toe import TicTacToe


def _tic_tac_toe(opponent: str = players.RANDOM, seat: int = -1) -> GameEnv:
    return GameEnv(TicTacToe(), opponent, seat)


def _probe_game(opponent: str = players.RANDOM, seat: int = -1) -> GameEnv:
    return GameEnv(ProbeGame(), opponent, seat)


# Each as its agent sees it, who has a scripted opponent outside of self-play.
ENVIRONMENTS: Mapping[str, Callable[..., JaxEnv]] = {"ProbeGame": _probe_game, "TicTacToe": _tic_tac_toe}
