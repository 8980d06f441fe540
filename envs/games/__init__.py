"""Two-player games: the rules, scripted players, and a game as one of its players sees it."""

from __future__ import annotations

from jaxrl.envs.games.game import Game as Game
from jaxrl.envs.games.game import game_of as game_of
