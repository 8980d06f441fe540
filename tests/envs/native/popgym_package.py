"""Episodes of the package `popgym` with given draws, for the tests that compare with it."""

from __future__ import annotations

import importlib
import re
import warnings

import numpy as np


class Episode:
    """An episode of `popgym`, as the classes of `memory_rules`.

    Args:
      level: such as `RepeatFirstEasy`.
      draws: what chance decides.
    """

    def __init__(self, level, draws):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            envs = importlib.import_module("popgym.envs")
            self.env = getattr(envs, level)()
        self.family = re.sub("(Easy|Medium|Hard)$", "", level)
        self.first, _ = self.env.reset(seed=0)
        self.draws, self.steps = draws, 0
        getattr(self, f"_set_{'body' if self.family.endswith(('Pole', 'Pendulum')) else 'draws'}")()

    def observe(self):
        return self.first

    def step(self, action):
        self.steps += 1
        if self.family == "MultiarmedBandit":
            self.env.bandits[:] = self.draws[0][self.steps - 1]  # pays with certainty, or never
        if self.family.endswith(("Pendulum", "CartPole")):
            action = action.astype(np.float32) if self.family.endswith("Pendulum") else int(action)
        return self.env.step(action)[:4]

    def _set_body(self):
        if self.family.endswith("CartPole"):
            self.env.unwrapped.state = np.array(self.draws[0], np.float64)
            self.first = self.draws[0][[0, 2]]
        else:
            self.env.unwrapped.state = np.array(self.draws, np.float64)
            self.first = [np.cos(self.draws[0]), np.sin(self.draws[0])]

    def _set_draws(self):
        env, draws = self.env, self.draws
        if self.family.startswith("Labyrinth"):
            maze = draws[0]
            env.maze.grid = maze.astype(np.int8)
            env.maze.start = env.position = tuple(int(x) for x in np.argwhere(maze == 2)[0])
            env.explored = np.zeros_like(env.maze.grid)
            env.explored[env.position] = 1
            env.pos_reward_scale = 1 / (maze == 0).sum()
            self.first = env.get_obs(4)
        elif self.family == "MineSweeper":
            mines = draws[0]
            env.hidden_grid = mines.astype(np.int8)
            around = np.pad(mines.astype(int), 1)
            n = len(mines)
            env.neighbor_grid = sum(around[i : i + n, j : j + n] for i in range(3) for j in range(3))
        elif self.family == "Battleship":
            env.board = draws[0].astype(np.int8)
        elif self.family == "Concentration":
            env.deck.idx = _cards(draws[0], env.deck_idx_type)
        elif self.family != "MultiarmedBandit":
            self._deal()

    def _deal(self):
        """Stacks decks, of which the last card is dealt first, and deals the first card."""
        env = self.env
        kinds = {"HigherLower": "ranks_idx"}.get(self.family, "suits_idx")
        if self.family == "CountRecall":
            for deck, order in zip((env.value_deck, env.query_deck), self.draws, strict=True):
                deck.reset(shuffle=False)
                deck.idx = _cards(order, env.deck_idx_type)[::-1]
            env.counts[:] = env.query_counts[:] = 0
            env.value, env.query = env.deal()
            env.counts[env.value] += 1
            self.first = (env.value, env.query)
            return
        order = _cards(self.draws[0], getattr(env.deck, kinds))
        player = "system" if self.family == "Autoencode" else "player"
        env.deck.reset(shuffle=False)
        env.deck.idx = order[::-1]
        env.deck.deal(player, 1)
        card = self.draws[0][0]
        env.card = np.int64(card)
        self.first = (1, card) if self.family == "Autoencode" else card


def _cards(kinds, of_card):
    """Cards of a deck in the order of these kinds."""
    stacks = {kind: list(np.flatnonzero(of_card == kind)) for kind in set(kinds)}
    return np.array([stacks[kind].pop() for kind in kinds])
