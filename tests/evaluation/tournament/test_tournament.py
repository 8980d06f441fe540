"""Tournaments: games held against a plain loop, results by seat, ratings by hand, and bad input."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import algorithms, envs
from jaxrl.commands import tournament as command
from jaxrl.config import ConfigError, resolve
from jaxrl.envs.base import Box, Discrete, EnvSpec
from jaxrl.envs.games import Game, players
from jaxrl.envs.games.game_env import GameEnv
from jaxrl.envs.native.games.tic_tac_toe import TicTacToe
from jaxrl.evaluation.tournament import tournament
from jaxrl.evaluation.tournament.contestants import Contestant, Scripted, Trained
from jaxrl.evaluation.tournament.session import GameSession, converse
from jaxrl.evaluation.tournament.tournament import play, play_both
from jaxrl.reporting.pages import tournament as report
from tests.commands.refusals import refused
from tests.experience.opponents.self_play import config

GAME = envs.make("jaxrl:TicTacToe").game


def scripted(name: str) -> Contestant:
    return Scripted(name, GAME, players.make("test", GAME, name))


@pytest.fixture(scope="module")
def policy() -> Trained:
    """Untrained, with memory, and sharp enough to tell who plays."""
    resolved = resolve(config(), 1)
    agent = algorithms.build_agent(resolved, envs.make("jaxrl:TicTacToe").spec)
    acting = jax.tree.map(lambda x: 5.0 * x, jax.jit(agent.init)(jax.random.key(3)))
    return Trained("policy", GAME, agent, acting, samples=True)


@pytest.mark.slow
def test_a_policy_against_itself_is_even(policy: Trained) -> None:
    """Over both seats it scores what it loses: 0.5, within three standard deviations."""
    first, second = play_both(policy, policy, seed=0, games=2000)
    np.testing.assert_array_equal(first, -second)  # the same keys, the other side
    score = (np.concatenate([first, second]) + 1) / 2
    assert score.mean() == 0.5
    # Of different games it is even in expectation alone.
    keys = jax.random.split(jax.random.key(9), 1000)
    other = (np.concatenate([first, -play(policy, policy, keys)]) + 1) / 2
    assert abs(other.mean() - 0.5) < 3 * 0.5 / math.sqrt(2000)


@pytest.mark.slow
def test_games_are_a_plain_loop(policy: Trained) -> None:
    """The best moves of a policy with memory against itself, one call at a time, with carries of each."""
    greedy = Trained("greedy", GAME, policy.agent, policy.acting, samples=False)
    found = play(greedy, greedy, jax.random.split(jax.random.key(0), 2))
    state = GAME.start(jax.random.key(0))
    carries, fresh, total = [policy.agent.initial_carry(1) for _ in range(2)], [True, True], 0.0
    while not GAME.is_over(state):
        seat = int(GAME.seat(state))
        obs, mask = GAME.observe(state, jnp.int32(seat))[None], GAME.action_mask(state)[None]
        out = policy.agent.forward(policy.acting, obs, carries[seat], jnp.array([fresh[seat]]), mask)
        carries[seat], fresh[seat] = out.carry, False
        state = GAME.play(jax.random.key(0), state, policy.agent.greedy(out)[0])
        total += float(GAME.rewards(state)[0])
    np.testing.assert_array_equal(found, [total, total])


@pytest.mark.slow
def test_results_are_those_of_both_seats(tmp_path: Path) -> None:
    contestants = [scripted(name) for name in ("random", "minimax", "greedy")]
    lines: list[str] = []
    results = tournament.run(contestants, games=200, seed=1, tell=lines.append)
    pairs = results.by_seat.sum(axis=2)
    assert len(lines) == 3
    assert [each.name for each in results.standings] == ["minimax", "greedy", "random"]
    best, _, worst = results.standings
    assert best.losses == 0
    assert best.elo - best.elo_half_width > worst.elo + worst.elo_half_width
    assert sum(each.elo for each in results.standings) == pytest.approx(0, abs=1e-6)
    assert sum(each.elo_in_turn for each in results.standings) == pytest.approx(0, abs=1e-6)
    assert all(each.games == 400 for each in results.standings)
    # A win of one is a loss of the other, and the first move is the other's second.
    np.testing.assert_array_equal(results.by_seat[0, 2], results.by_seat[2, 0, ::-1, ::-1])
    assert results.by_seat[1, 2, 0, 0] > results.by_seat[1, 2, 1, 0]  # who begins wins more
    assert (results.by_seat[0, 1].sum(axis=1) == 100).all()
    again = tournament.run(contestants[:2], games=200, seed=1)
    np.testing.assert_array_equal(again.by_seat[0, 1], results.by_seat[0, 2])  # keys are fixed
    cells = report.tables(results.record())[1].rows
    for (i, j), cell in np.ndenumerate(np.array([row[1:] for row in cells])):
        assert cell == ("" if i == j else "-".join(map(str, pairs[i, j])))
    cells = report.tables(results.record())[2].rows
    for (i, j), cell in np.ndenumerate(np.array([row[1:] for row in cells])):
        assert cell == ("" if i == j else "-".join(map(str, results.by_seat[i, j, 0])))
    scores = report._scores(results.record())
    for i, row in enumerate(results.standings):
        against = [score for (one, _), score in scores.items() if one == row.name]
        assert len(against) == 2
        assert np.mean(against) == pytest.approx(row.score)
        wins, draws, _ = pairs[i, (i + 1) % 3]
        assert scores[row.name, results.standings[(i + 1) % 3].name] == (wins + draws / 2) / 200
    files = report.write(results.record(), str(tmp_path / "out"))
    record = json.loads(Path(files[1]).read_text())
    assert record["standings"][0]["name"] == "minimax"
    assert record["pairs"][1]["first"]["losses"] == 0
    page = Path(files[0]).read_text()
    assert "minimax" in page
    assert "Standings" in page
    assert Path(files[2]).read_bytes().startswith(b"\x89PNG")


def test_the_most_likely_ratings_by_hand() -> None:
    # 29.5 of 39 and a draw more: odds of 3, whose middle is 0.
    score = np.array([[0, 29.5], [9.5, 0]])
    elo, half = tournament.maximum_likelihood(score, np.array([[0, 39], [39, 0]]))
    distance = 400 * math.log10(3)
    np.testing.assert_allclose(elo, [distance / 2, -distance / 2], rtol=1e-6)
    # Information of 40 games at 3/4: of the difference 7.5, of a half of it four times as much.
    np.testing.assert_allclose(half, 1.959964 * 400 / math.log(10) / math.sqrt(7.5) / 2, rtol=1e-5)


def test_ratings_in_turn_by_hand() -> None:
    games = [(0, 1, 1.0), (1, 0, 0.5)]
    expected = 1 / (1 + 10 ** (32 / 400))  # of the second player, 32 points behind
    change = 32 * (0.5 - expected)
    np.testing.assert_allclose(tournament.elo_in_turn(games, 2), [16 - change, -16 + change])


def test_open_skill_orders_players() -> None:
    pytest.importorskip("openskill")
    games = [(0, 1, 1.0), (1, 2, 0.5), (0, 2, 1.0)] * 10
    (best, sigma), (second, _), (third, _) = tournament.open_skill(games, 3)
    assert best > second
    assert best > third
    assert sigma < 25 / 3


def test_open_skill_is_missed_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openskill", None)
    nobody: Any = None
    with pytest.raises(ConfigError, match="`--openskill` needs the `openskill` extra"):
        tournament.run([nobody, nobody], games=2, seed=0, openskill=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["random"], "two players are needed"),
        (["random", "random"], "is named twice"),
        (["random", "greedy"], "`--game` must name the game"),
        (
            ["random", "nobody", "--game=jaxrl:TicTacToe"],
            "neither the folder of a run nor a player of jaxrl:Tic",
        ),
        (["random", "greedy", "--game=gymnax:CartPole-v1"], "is not a two-player game"),
        (["random", "greedy", "--game=jaxrl:TicTacToe", "--games=3"], "must be even"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capfd: Any) -> None:
    assert message in refused(capfd, "tournament", *arguments)


@pytest.mark.slow
def test_the_command_plays_scripted_players(capfd: Any) -> None:
    arguments = ["random", "minimax", "--game=jaxrl:TicTacToe", "--games=20"]
    assert command.main(["jaxrl tournament", *arguments]) == 0
    shown = capfd.readouterr().out
    assert "Standings" in shown
    assert "random - minimax: 0 won" in shown


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"env.name": "gymnax:CartPole-v1"},
            "is a policy of gymnax:CartPole-v1, which is not a two-player game",
        ),
        ({"env.name": "jaxrl:ProbeGame"}, "plays jaxrl:ProbeGame, and not jaxrl:TicTacToe as the others do"),
        ({"env.wrappers": ("flatten_observation",)}, "with wrappers, which see one seat alone"),
    ],
)
def test_policies_of_other_games_are_refused(
    fields: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such as those that observe or choose something else."""
    from jaxrl.evaluation.tournament import contestants

    class Run:
        config = resolve(config(**{"selfplay.enabled": False} | fields), 1)

    monkeypatch.setattr(contestants.trained_policy, "load", lambda *_, **__: Run)
    with pytest.raises(ConfigError, match=message) as caught:
        contestants.enter([str(tmp_path), "random"], game="jaxrl:TicTacToe")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_person_plays_in_text() -> None:
    said: list[str] = []
    lines = iter(["12", "x", "4", *map(str, range(9)), *map(str, range(9))])
    session = GameSession(scripted("minimax"), seat=1, key=jax.random.key(2))
    session_moves = session.allowed
    assert converse(session, lambda prompt: next(lines), said.append)
    assert said[0] == "you play x and move second; q leaves"
    assert said[1].count("o") == 1  # the opponent has begun
    # The other cells have the numbers of their moves.
    assert sorted(said[1].split()) == sorted([*map(str, session_moves), "o"])
    assert "'12' is no move that is allowed here" in said
    assert said[-1] in ("you lose", "a draw")
    answers = [line for line in said if line.startswith("the opponent moves")]
    assert said[-2].count("o") == len(answers) + 1
    left = GameSession(scripted("random"), seat=0, key=jax.random.key(2))
    assert left.allowed == list(range(9))
    assert not converse(left, lambda prompt: "q", said.append)


@pytest.mark.slow
def test_moves_that_are_no_cell_have_names() -> None:
    class Passing(TicTacToe):
        """With a move 9, which is always allowed and changes nothing but the turn."""

        move_names = {9: "pass"}  # noqa: RUF012

        def action_mask(self, state: Any) -> Any:
            return jnp.append(super().action_mask(state), True)

    game = Passing()
    opponent = Scripted("random", game, lambda state, key: jnp.argmax(state.board == 0))
    session = GameSession(opponent, seat=0, key=jax.random.key(0))
    assert session.board() == "0 1 2\n3 4 5\n6 7 8"
    assert session.describe(session.allowed) == "0-8, pass"
    assert [session.number(text) for text in ("pass", "9", "3", "10", "pa", "-1", "²")] == [
        9,
        9,
        3,
        *[None] * 4,
    ]
    session.move(4)
    assert session.board() == "o 1 2\n3 x 5\n6 7 8"
    assert session.describe(session.allowed) == "1-3, 5-8, pass"


def test_columns_have_numbers_above_them() -> None:
    pytest.importorskip("pgx")
    game = envs.make("pgx:connect_four").game
    opponent = Scripted("greedy", game, players.make("test", game, "greedy"))
    session = GameSession(opponent, seat=0, key=jax.random.key(0))
    session.move(3)
    lines = session.board().splitlines()
    assert lines[0] == "0 1 2 3 4 5 6"
    assert len(lines) == 7
    assert [lines[i].split()[3] for i in (5, 6)] in (["o", "x"], [".", "x"])


def test_play_needs_a_game_and_an_opponent(capfd: Any) -> None:
    assert "neither the folder of a run nor a player" in refused(
        capfd, "play", "jaxrl:TicTacToe", "--opponent=nobody"
    )
    assert "is not a two-player game" in refused(capfd, "play", "gymnax:CartPole-v1")
    assert "none of greedy is the folder of a run: `GAME` must name the game" in refused(
        capfd, "play", "--opponent=greedy"
    )


class Points(Game):
    """Three moves each; the first of a seat gives it 1, the second of seat 1 one more."""

    def __init__(self) -> None:
        self.spec = EnvSpec("tests:Points", Box.of(0.0, 6.0, (1,)), Discrete(2), max_episode_steps=3)

    def start(self, key: jax.Array) -> jax.Array:
        return jnp.int32(0)

    def play(self, key: jax.Array, state: jax.Array, action: jax.Array) -> jax.Array:
        return state + 1

    def seat(self, state: jax.Array) -> jax.Array:
        return state % 2

    def observe(self, state: jax.Array, seat: jax.Array) -> jax.Array:
        return jnp.full(1, state, jnp.float32)

    def action_mask(self, state: jax.Array) -> jax.Array:
        return jnp.ones(2, bool)

    def rewards(self, state: jax.Array) -> jax.Array:
        return jnp.array([[0, 0], [1, 0], [0, 1], [0, 0], [0, 1], [0, 0], [0, 0]], jnp.float32)[state]

    def ends(self, state: jax.Array) -> tuple[jax.Array, jax.Array]:
        return state >= 6, jnp.zeros((), bool)


@pytest.mark.slow
def test_the_larger_sum_wins_also_if_both_do_not_cancel() -> None:
    """Seat 0 gets 1 and seat 1 gets 2, by rewards on the way and none at the end."""
    game = Points()
    player = Scripted("random", game, players.make("test", game, "random"))
    first, second = play_both(player, player, seed=0, games=4)
    assert first.tolist() == [-1, -1]
    assert second.tolist() == [1, 1]
    session = GameSession(player, seat=1, key=jax.random.key(0))
    while not session.is_over:
        session.move(0)
    assert session.outcome == "you win"
    for seat in range(2):
        env = GameEnv(game, seat=seat)
        state, _ = env.reset(jax.random.key(0))
        rewards, won = [], []
        for _ in range(3):
            state, step = env.step(jax.random.key(0), state, jnp.int32(0))
            rewards.append(float(step.reward))
            won.append(bool(step.info["success"]))
        assert rewards == [[1, 0, 0], [1, 1, 0]][seat]
        assert won == [False, False, seat == 1]
