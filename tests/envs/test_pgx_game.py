"""Pgx's games of two by seats: its tic-tac-toe and this project's own are one game."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.games import game_of, players
from jaxrl.envs.native.games.tic_tac_toe import TicTacToe

pytest.importorskip("pgx")


def test_tic_tac_toe_is_the_same_game() -> None:
    theirs, ours = game_of(envs.make("pgx:tic_tac_toe")), TicTacToe()
    assert theirs is not None
    assert theirs.alternates

    def facts(game, state):
        views = [game.observe(state, jnp.int32(seat)) for seat in range(2)]
        return views, game.action_mask(state), game.seat(state), game.rewards(state), game.ends(state)

    tell, play = {}, {}
    for game in (theirs, ours):
        tell[game] = jax.jit(lambda state, game=game: facts(game, state))
        play[game] = jax.jit(game.play)
    rng = np.random.default_rng(1)
    first, ended = set(), set()
    for number in range(10):
        key = jax.random.key(number)
        states = {game: game.start(key) for game in (theirs, ours)}
        first.add(int(states[theirs].first))
        for _ in range(9):
            there, here = (jax.device_get(tell[game](states[game])) for game in (theirs, ours))
            assert int(there[2]) == int(here[2])
            np.testing.assert_array_equal(there[3], here[3])
            np.testing.assert_array_equal(there[4], here[4])
            for view, own in zip(there[0], here[0], strict=True):
                np.testing.assert_array_equal(view, own)
            if here[4][0]:
                break
            np.testing.assert_array_equal(there[1], here[1])
            move = jnp.int32(rng.choice(np.flatnonzero(here[1])))
            states = {game: play[game](key, state, move) for game, state in states.items()}
        ended.add(float(tell[ours](states[ours])[3][0]))
    assert first == {0, 1}  # the suite draws who is player 0
    assert ended >= {1.0, -1.0}


def test_players_look_ahead_in_its_games() -> None:
    """In Connect Four with three of a column the fourth wins at once."""
    game = game_of(envs.make("pgx:connect_four"))
    assert game is not None
    play = jax.jit(game.play)
    state = game.start(jax.random.key(0))
    for move in (2, 4, 2, 4, 2, 4):
        state = play(jax.random.key(0), state, jnp.int32(move))
    greedy = jax.jit(players.make("test", game, "greedy"))
    assert {int(greedy(state, jax.random.key(i))) for i in range(4)} == {2}
    assert players.names(game) == ("random", "greedy", "mcts-N")


@pytest.mark.slow
@pytest.mark.parametrize("seat", [0, 1])
def test_the_seat_of_the_agent_may_be_given(seat: int) -> None:
    """Reward and observation are those of the seat, whichever player has it."""
    env = envs.make(f"pgx:connect_four(opponent='greedy', seat={seat})")
    assert env.spec.name == f"pgx:connect_four(opponent='greedy', seat={seat})"
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    players_seen = set()
    for number in range(6):
        state, obs = reset(jax.random.key(number))
        players_seen.add(int(state.agent))
        assert obs.sum(axis=(0, 1)).tolist() == [0, seat]  # its own stones, and the other's
        # The same column again and again: five moves fill it, or somebody wins before.
        for turn in range(3):
            state, timestep = step(jax.random.key(turn), state, jnp.int32(3))
            if timestep.terminated:
                break
            assert timestep.obs[..., 0].sum() == turn + 1
            assert timestep.obs[..., 1].sum() == turn + 1 + seat
    assert players_seen == {0, 1}


def test_only_games_of_two_have_seats() -> None:
    with pytest.raises(ValueError, match=r"seat \(=0\) is only of games of two"):
        envs.make("pgx:2048(seat=0)")
    with pytest.raises(ValueError, match=r"seat \(=2\) must be 0, 1"):
        envs.make("pgx:connect_four(seat=2)")
