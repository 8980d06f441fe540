"""Pgx's trained models as players: the file on this machine, its policy, and what is said without it."""

from __future__ import annotations

import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.games import Game, players
from tests.commands.refusals import refused

pytest.importorskip("pgx")
KEY = jax.random.key(0)


def othello() -> Game:
    return envs.make("pgx:othello").game


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an empty one where the models go."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "baselines").mkdir()
    return tmp_path / "baselines"


def test_the_model_draws_by_its_policy(folder: Path) -> None:
    """A small network in the form of the published ones, held against the suite's own function."""
    hk = pytest.importorskip("haiku")
    from pgx import make_baseline_model
    from pgx._src.baseline import _create_az_model_v0

    sizes = {"num_actions": 65, "num_channels": 4, "num_layers": 1, "resnet_v2": True}

    def forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _create_az_model_v0(**sizes)(x, is_training=True, test_local_stats=False)

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        params, state = hk.transform_with_state(forward).init(
            jax.random.key_data(KEY), jax.random.normal(KEY, (4, 8, 8, 2))
        )
        # Fresh policies are nearly even.
        params = jax.tree.map(lambda x: 1.5 * np.asarray(x), params)
        stored = {"args": sizes, "params": params, "state": jax.device_get(state)}
        (folder / "othello_v0.ckpt").write_bytes(pickle.dumps(stored))
        theirs = make_baseline_model("othello_v0", str(folder))
        game = othello()
        at = game.play(KEY, game.start(KEY), jnp.int32(19))
        logits = theirs(game.observe(at, game.seat(at))[None])[0][0]
    allowed = np.asarray(game.action_mask(at))
    logits = np.where(allowed, logits, -np.inf)
    expected = np.exp(logits - logits.max())
    expected /= expected.sum()
    assert expected.max() - expected[allowed].min() > 0.1
    player = players.make("test", game, "baseline")
    drawn = jax.jit(jax.vmap(player, in_axes=(None, 0)))(at, jax.random.split(KEY, 4000))
    found = np.bincount(drawn, minlength=65) / 4000
    assert (found[~allowed] == 0).all()
    np.testing.assert_allclose(found, expected, atol=4 * 0.5 / np.sqrt(4000))


def test_nothing_is_downloaded(folder: Path) -> None:
    file = "baselines/othello_v0.ckpt"
    with pytest.raises(ValueError, match=f"pgx:othello: baseline needs {file}, which is not") as caught:
        players.make("test", othello(), "baseline")
    assert "\n" not in str(caught.value)
    assert not list(folder.iterdir())


def test_a_tournament_says_what_is_missing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "baselines/othello_v0.ckpt, which is not there" in refused(
        capfd, "tournament", "random", "baseline", "--game=pgx:othello"
    )


def test_a_file_that_is_no_model(folder: Path) -> None:
    pytest.importorskip("haiku")
    (folder / "othello_v0.ckpt").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"othello_v0.ckpt is no model: UnpicklingError") as caught:
        envs.make('pgx:othello(opponent="baseline")')
    assert "\n" not in str(caught.value)


def test_only_games_with_a_model_have_the_player() -> None:
    assert players.names(othello()) == ("random", "greedy", "baseline", "mcts-N")
    assert not players.is_scripted(envs.make("pgx:connect_four").game, "baseline")
    with pytest.raises(ValueError, match="must be one of random, greedy, mcts-N"):
        envs.make('pgx:connect_four(opponent="baseline")')
