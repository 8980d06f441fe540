"""Games of two: the rules, the solution of tic-tac-toe, scripted players, and what one player sees."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.games import Game, players
from jaxrl.envs.native.games.tic_tac_toe import TicTacToe
from jaxrl.envs.native.probe_agents import PAYOFFS, ProbeGame

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
KEY = jax.random.key(0)


def after(game: Game, moves: tuple[int, ...]) -> Any:
    state = game.start(KEY)
    for move in moves:
        state = game.play(KEY, state, jnp.int32(move))
    return state


def best(moves: tuple[int, ...]) -> list[int]:
    game = TicTacToe()
    return np.flatnonzero(game.best_moves(after(game, moves))).tolist()


@pytest.mark.slow
def test_tic_tac_toe_is_its_rules() -> None:
    """Random games against a board in Python, from both seats."""
    game, rng = TicTacToe(), np.random.default_rng(0)
    play, observe = jax.jit(game.play), jax.jit(game.observe)
    seen = set()
    for _ in range(12):
        state, board = game.start(KEY), [0] * 9
        for turn in range(9):
            seat = turn % 2
            assert int(game.seat(state)) == seat
            for view in range(2):
                planes = [[cell == mark for cell in board] for mark in (view + 1, 2 - view)]
                np.testing.assert_array_equal(
                    observe(state, jnp.int32(view)), np.array(planes).T.reshape(3, 3, 2)
                )
            np.testing.assert_array_equal(game.action_mask(state), [cell == 0 for cell in board])
            move = int(rng.choice([i for i in range(9) if not board[i]]))
            board[move] = seat + 1
            state = play(KEY, state, jnp.int32(move))
            won = any(all(board[i] == seat + 1 for i in line) for line in LINES)
            assert bool(game.is_over(state)) == (won or all(board))
            gain = 1.0 if won else 0.0
            np.testing.assert_array_equal(game.rewards(state), [gain, -gain] if seat == 0 else [-gain, gain])
            if won or all(board):
                seen.add((seat, won))
                break
    assert {(0, True), (1, True)} <= seen


def test_the_solution_is_the_known_one() -> None:
    assert best(()) == list(range(9))  # every first move draws
    assert best((0,)) == [4]  # a corner is answered in the centre alone
    assert best((4,)) == [0, 2, 6, 8]  # the centre in a corner
    assert best((0, 4, 8)) == [1, 3, 5, 7]  # and never in a third corner here
    assert best((0, 3, 1, 4)) == [2]  # wins at once
    assert best((0, 4, 1)) == [2]  # stops the other


def results(opponent: str, player: str, games: int = 256) -> np.ndarray:
    """float32[games], of `player`, who begins in half of them."""
    env = envs.make(f"jaxrl:TicTacToe(opponent='{opponent}')")
    chosen = players.make("test", env.game, player)

    def one(key: jax.Array) -> jax.Array:
        state, _ = env.reset(key)

        def move(t: int, loop: tuple[Any, jax.Array, jax.Array]) -> tuple[Any, jax.Array, jax.Array]:
            state, total, over = loop
            keys = jax.random.split(jax.random.fold_in(key, t))
            state, step = env.step(keys[0], state, chosen(state.game, keys[1]))
            return state, total + jnp.where(over, 0.0, step.reward), over | step.done

        return jax.lax.fori_loop(0, 5, move, (state, jnp.float32(0), jnp.zeros((), bool)))[1]

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(3), games)))


@pytest.mark.slow
def test_scripted_players_play_as_well_as_they_say() -> None:
    assert (results("minimax", "minimax") == 0).all()
    assert (results("random", "minimax") >= 0).all()
    assert results("random", "greedy").mean() > 0.3
    game = TicTacToe()
    greedy = players.make("test", game, "greedy")
    chosen = {int(greedy(after(game, (0, 3, 1, 4)), key)) for key in jax.random.split(KEY, 8)}
    assert chosen == {2}


@pytest.mark.slow
def test_seats_are_drawn_evenly_or_given() -> None:
    env = envs.make("jaxrl:TicTacToe")
    seats = jax.vmap(lambda key: env.reset(key)[0].seat)(jax.random.split(KEY, 400))
    assert 160 <= int(seats.sum()) <= 240
    state, obs = envs.make("jaxrl:TicTacToe(seat=1)").reset(KEY)
    assert int(state.seat) == 1
    assert obs.sum(axis=(0, 1)).tolist() == [0, 1]  # the opponent has moved


def test_the_probe_pays_what_its_table_says() -> None:
    game = ProbeGame()
    for first in range(2):
        for second in range(2):
            state = after(game, (first, second))
            np.testing.assert_allclose(game.rewards(state), np.array([1, -1]) * PAYOFFS[first][second])
    assert not game.is_over(after(game, (1, 1, 1)))
    assert game.is_over(after(game, (1, 1, 1, 1)))
    np.testing.assert_array_equal(game.action_mask(game.start(KEY)), [True, True, False])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("jaxrl:TicTacToe(opponent='minmax')", "must be one of random, greedy, minimax, mcts-N"),
        ("jaxrl:ProbeGame(opponent='minimax')", "must be one of random, greedy, mcts-N, or"),
        ("jaxrl:TicTacToe(opponent='os:nothing')", "has no nothing"),
        ("jaxrl:TicTacToe(seat=2)", r"seat \(=2\) must be 0, 1"),
    ],
)
def test_wrong_arguments(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        envs.make(name)
    assert "\n" not in str(caught.value)
