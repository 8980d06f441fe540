"""Tree search: its counts against UCB1 and UCT in Python, its moves against the solution of tic-tac-toe."""

from __future__ import annotations

import dataclasses
import math
import random

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.base import Box, Discrete, EnvSpec
from jaxrl.envs.games import Game, players
from jaxrl.envs.native.games.tic_tac_toe import TicTacToe
from jaxrl.envs.native.probe_agents import ProbeGame
from jaxrl.evaluation.tournament.contestants import Scripted
from jaxrl.evaluation.tournament.tournament import play_both
from tests.envs.native.test_games import LINES, after

KEY = jax.random.key(0)
PAYOFFS = (0.25, -1.0, 0.5, 0.75)


@flax.struct.dataclass
class Chosen:
    """int32[], the move that has been made; -1 before it."""

    arm: jax.Array


class Arms(Game):
    """One move, which gives what its table says, and ends it; the third is never allowed."""

    def __init__(self) -> None:
        self.spec = EnvSpec("test:Arms", Box.of(0.0, 1.0, (1,)), Discrete(4), has_action_mask=True)

    def start(self, key: jax.Array) -> Chosen:
        return Chosen(jnp.full((), -1, jnp.int32))

    def play(self, key: jax.Array, state: Chosen, action: jax.Array) -> Chosen:
        return Chosen(action.astype(jnp.int32))

    def seat(self, state: Chosen) -> jax.Array:
        return jnp.zeros((), jnp.int32)

    def observe(self, state: Chosen, seat: jax.Array) -> jax.Array:
        return jnp.zeros(1)

    def action_mask(self, state: Chosen) -> jax.Array:
        return jnp.arange(4) != 2

    def rewards(self, state: Chosen) -> jax.Array:
        paid = jnp.where(state.arm < 0, 0.0, jnp.array(PAYOFFS)[state.arm])
        return jnp.stack([paid, -paid])

    def ends(self, state: Chosen) -> tuple[jax.Array, jax.Array]:
        return state.arm >= 0, jnp.zeros((), bool)


@pytest.mark.slow
@pytest.mark.parametrize("simulations", [2, 3, 40])
def test_moves_that_end_a_game_are_visited_as_by_ucb1(simulations: int) -> None:
    """Auer et al. 2002, with results between 0 and 1 and a constant of sqrt(2)."""
    game = Arms()
    found = np.asarray(players.visits(game, game.start(KEY), KEY, simulations))
    counts, arms = np.array([1, 1, 0, 1]), [0, 1, 3]
    for n in range(3, simulations):
        bound = [(PAYOFFS[j] + 1) / 2 + math.sqrt(2 * math.log(n) / counts[j]) for j in arms]
        counts[arms[int(np.argmax(bound))]] += 1
    if simulations < 3:
        assert sorted(found) == [0, 0, 1, 1]
    else:
        np.testing.assert_array_equal(found, counts)
    assert found[2] == 0


@dataclasses.dataclass
class Node:
    """Its children by the moves to them, the visits, and the sum of the first player's results, -1 to 1."""

    children: dict[int, Node] = dataclasses.field(default_factory=dict)
    visits: int = 0
    total: float = 0.0

    def bound(self, player: int, parent: int) -> float:
        """UCB1 for a player, 1 or -1, of a node whose parent was visited so often."""
        mean = (player * self.total / self.visits + 1) / 2
        return mean + math.sqrt(2 * math.log(parent) / self.visits)


def plain_visits(moves: tuple[int, ...], simulations: int, rng: random.Random) -> list[int]:
    """UCT in tic-tac-toe on a list of nine cells."""

    def value(board: list[int], player: int) -> int | None:
        if any(all(board[i] == player for i in line) for line in LINES):
            return player
        return None if 0 in board else 0

    root = Node()
    for _ in range(simulations):
        board, player, path, result = [0] * 9, 1, [root], None
        for move in moves:
            board[move], player = player, -player
        grows = True
        while result is None:
            free = [i for i in range(9) if not board[i]]
            children = path[-1].children
            untried = [i for i in free if i not in children]
            if not grows or untried:
                move = rng.choice(untried if grows else free)
            else:
                visits = path[-1].visits
                move = max(free, key=lambda i: children[i].bound(player, visits))
            if grows:
                path.append(children.setdefault(move, Node()))
                grows = not untried
            board[move] = player
            result = value(board, player)
            player = -player
        for node in path:
            node.visits += 1
            node.total += result
    return [root.children[i].visits if i in root.children else 0 for i in range(9)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "moves", [(0,), pytest.param((0, 4, 5), marks=pytest.mark.long)], ids=["second", "first"]
)
def test_moves_are_visited_as_often_as_by_uct_in_python(moves: tuple[int, ...]) -> None:
    """The mean over 60 searches of each, within four standard errors of the difference."""
    game, count, simulations = TicTacToe(), 60, 300
    search = jax.jit(jax.vmap(lambda key: players.visits(game, after(game, moves), key, simulations)))
    found = np.asarray(search(jax.random.split(KEY, count)))
    rng = random.Random(0)
    plain = np.array([plain_visits(moves, simulations, rng) for _ in range(count)])
    assert (found.sum(axis=1) == simulations).all()
    assert (plain.sum(axis=1) == simulations).all()
    error = np.sqrt((found.var(axis=0) + plain.var(axis=0)) / count)
    mean = plain.mean(axis=0)
    np.testing.assert_array_less(np.abs(found.mean(axis=0) - mean), 4 * error + 1e-9)
    # Not as a search would that prefers nothing.
    assert (np.abs(mean - simulations / (9 - len(moves))) > 8 * error)[mean > 0].any()


@pytest.mark.long
def test_it_loses_no_game_to_random_moves() -> None:
    game = TicTacToe()
    one, other = (Scripted(x, game, players.make("test", game, x)) for x in ("mcts-1000", "random"))
    begun, answered = play_both(one, other, seed=0, games=60)
    assert min(begun.min(), answered.min()) == 0
    assert begun.mean() > answered.mean() > 0.5


@pytest.mark.slow
def test_each_seat_looks_for_its_own_best() -> None:
    """The best moves of the probe are 1 for both seats (`ProbeGame`), and its third is not allowed."""
    game = ProbeGame()
    for moves in ((), (1,), (0,), (1, 1), (1, 1, 1)):
        found = np.asarray(players.visits(game, after(game, moves), KEY, 200))
        assert found.sum() == 200
        assert found[2] == 0
        assert found[1] > found[0], moves


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moves", "expected"),
    [((0, 3, 1, 4), 2), ((0, 4, 1), 2), ((0, 4, 8, 1, 2), 7)],
    ids=["wins", "stops", "wins second"],
)
def test_the_only_move_is_found(moves: tuple[int, ...], expected: int) -> None:
    game = TicTacToe()
    player = jax.jit(jax.vmap(players.make("test", game, "mcts-300"), in_axes=(None, 0)))
    assert set(np.asarray(player(after(game, moves), jax.random.split(KEY, 8))).tolist()) == {expected}


@pytest.mark.slow
def test_one_simulation_is_a_random_move() -> None:
    game = TicTacToe()
    player = jax.jit(jax.vmap(players.make("test", game, "mcts-1"), in_axes=(None, 0)))
    chosen = np.asarray(player(after(game, (0, 4)), jax.random.split(KEY, 700)))
    counts = np.bincount(chosen, minlength=9)
    assert (counts[[0, 4]] == 0).all()
    assert (counts[[1, 2, 3, 5, 6, 7, 8]] > 60).all()  # 100 each, four standard deviations


@pytest.mark.slow
def test_an_environment_has_it_as_its_opponent() -> None:
    env = envs.make("jaxrl:TicTacToe(opponent='mcts-60', seat=1)")
    assert env.spec.name == "jaxrl:TicTacToe(opponent='mcts-60', seat=1)"
    _, obs = env.reset(KEY)
    assert obs.sum(axis=(0, 1)).tolist() == [0, 1]


@pytest.mark.parametrize("name", ["mcts", "mcts-0", "mcts-01", "mcts-1000000", "mcts-x", "MCTS-3"])
def test_what_is_no_search(name: str) -> None:
    with pytest.raises(ValueError, match="must be one of random, greedy, minimax, mcts-N"):
        players.make("test", TicTacToe(), name)
