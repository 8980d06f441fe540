"""This project's own two-player games."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from jaxrl.envs.base import JaxEnv
from jaxrl.envs.games.game_env import GameEnv
from jaxrl.envs.native.games.tic_tac_toe import TicTacToe
from jaxrl.envs.native.probe_agents import ProbeGame

# Each as its agent sees it, who has a scripted opponent outside of self-play.
ENVIRONMENTS: Mapping[str, Callable[..., JaxEnv]] = {
    "ProbeGame": functools.partial(GameEnv, ProbeGame()),
    "TicTacToe": functools.partial(GameEnv, TicTacToe()),
}
