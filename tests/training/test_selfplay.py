"""Runs of self-play: swaps, resumes, devices, and the known values of a game."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.config import ConfigError, resolve
from jaxrl.envs.games import players
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.tournament.contestants import Scripted, Trained
from jaxrl.evaluation.tournament.tournament import play
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.memory import require_memory
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests import processes
from tests.algorithms.tiny import assert_equal, copied
from tests.experience.opponents.self_play import config, first_state, iteration

# Snapshots after 2, 4, 6, ... iterations, and other opponents after each.
BUSY = {"selfplay.every_steps": 128, "selfplay.swap_steps": 64}
# Of the trainers here, which share their programs.
LEARNS = {**BUSY, "normalize.observations": True, "ppo.learning_rate": 0.1}


@pytest.mark.slow
def test_a_run_with_a_pool_resumes_bit_for_bit(tmp_path: Path) -> None:
    trainer = Trainer(config(**LEARNS), writer=MultiWriter(()))
    rows = []
    for i in range(7):
        if i == 5:
            trainer.save(tmp_path / "5")
        rows.append(trainer.update(trainer.rollout()))
    assert trainer.state.opponents.number.tolist() != [1, 0, 0]
    assert {f"selfplay/{name}" for name in ("win_rate", "draw_rate", "elo", "pool")} <= rows[-1].keys()
    assert int(rows[-1]["selfplay/pool"]) == 2
    end = copied(trainer.state)
    trainer.load(tmp_path / "5")
    for row in rows[5:]:
        assert trainer.update(trainer.rollout()) == row
    assert_equal(end, trainer.state)
    trainer.close()


@pytest.mark.slow
def test_a_snapshot_acts_as_its_checkpoint_does_alone(tmp_path: Path) -> None:
    """Of the same step: games with the same keys are the same, also after the policy has learnt on."""
    trainer = Trainer(config(**LEARNS), writer=MultiWriter(()))
    for _ in range(2):
        trainer.update(trainer.rollout())
    trainer.save(tmp_path / "run")
    trainer.update(trainer.rollout())
    opponents, now = trainer.state.opponents, trainer.state.learner.policy
    (slot,) = np.flatnonzero(opponents.number == 2)
    stored = trained_policy.load(str(tmp_path / "run"), devices=1)
    game = envs.make("jaxrl:TicTacToe").game
    keys = jax.random.split(jax.random.key(1), 200)
    foe = Scripted("random", game, players.make("test", game, "random"))
    results = []
    for acting in (stored.state, jax.tree.map(lambda x: x[slot], opponents.snapshots), now):
        policy = Trained("policy", game, stored.agent, acting)
        results.append(play(policy, foe, keys))
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] != results[2]).any()
    trainer.close()


@pytest.mark.slow
def test_a_swap_starts_game_and_carries_anew() -> None:
    """In the swapped group alone; games of the others go on with their carries."""
    program = iteration(**BUSY)
    rollout = jax.jit(program.rollout)
    state = first_state(program)
    state, _, _ = rollout(state)
    state = dataclasses.replace(state, iteration=state.iteration + 1)
    swapped = dataclasses.replace(state.opponents, swapped=jnp.array([True, False]))
    plain, before, _ = rollout(state)
    after, trajectory, _ = rollout(dataclasses.replace(state, opponents=swapped))
    is_swapped = np.arange(8) % 4 == 2
    assert trajectory.reset[0][is_swapped].all()
    assert not state.collector.reset[is_swapped].all()
    board = np.asarray(trajectory.obs)[0].sum(axis=(1, 2, 3))
    assert (board[is_swapped] == 0).all()
    assert (board[~is_swapped] > 0).any()
    for carry in jax.tree.leaves(trajectory.carry):
        assert (np.asarray(carry)[0][is_swapped] == 0).all()
        assert (np.asarray(carry)[0][~is_swapped] != 0).any()
    # All that the others do is what they did without.
    jax.tree.map(
        lambda x, y: np.testing.assert_array_equal(
            np.asarray(x)[:, ~is_swapped], np.asarray(y)[:, ~is_swapped]
        ),
        (trajectory.obs, trajectory.action, trajectory.reward),
        (before.obs, before.action, before.reward),
    )
    # The opponent moves into a fresh game with a fresh carry; a lost game does not count.
    assert (np.asarray(after.collector.env_state.results).sum(axis=1)[is_swapped] > 0).all()
    assert plain.opponents is not None


@pytest.mark.slow
def test_rows_that_wait_are_no_transitions() -> None:
    program = iteration()
    state, trajectory, totals = jax.jit(program.rollout)(first_state(program))
    seat_rows = ~np.asarray(trajectory.valid)
    assert 0 < seat_rows.sum() < seat_rows.size / 2
    # Each is the first of a game, which begins again with the row after it, on the other's first move.
    assert np.asarray(trajectory.reset)[seat_rows].all()
    t, b = np.nonzero(seat_rows[:-1])
    assert np.asarray(trajectory.reset)[t + 1, b].all()
    obs = np.asarray(trajectory.obs)
    assert (obs[t, b].sum(axis=(1, 2, 3)) == 0).all()
    assert (obs[t + 1, b].sum(axis=(1, 2)) == [0, 1]).all()
    assert (np.asarray(trajectory.reward)[seat_rows] == 0).all()
    ended = float(np.asarray(trajectory.terminated).sum())
    assert float(totals.count) == ended == float(np.asarray(state.collector.env_state.results).sum())


@pytest.mark.slow
def test_without_self_play_nothing_is_kept_of_it() -> None:
    plain = iteration(**{"selfplay.enabled": False})
    state = first_state(plain)
    assert state.opponents is None
    _, trajectory, _ = jax.eval_shape(plain.rollout, state)
    assert trajectory.valid is None


@pytest.mark.slow
def test_values_of_the_probe_are_the_known_ones() -> None:
    """Optimal play of both seats is known, and so is the value of each turn (`ProbeGame`)."""
    gamma = 0.9
    settings: dict[str, Any] = {
        "env.name": "jaxrl:ProbeGame",
        "env.num_envs": 64,
        "network.core": "none",
        "network.hidden_sizes": (32,),
        "ppo.rollout_length": 16,
        "ppo.num_epochs": 4,
        "ppo.learning_rate": 5e-3,
        "ppo.gamma": gamma,
        "ppo.gae_lambda": 0.9,
        "ppo.entropy_coef": 0.001,
        "stop.steps": 120 * 64 * 16,  # the learning rate goes by it
        "selfplay.every_steps": 20_000,
        "selfplay.swap_steps": 10_000,
    }
    program = iteration(**settings)
    repeat = jax.jit(
        lambda state: jax.lax.scan(lambda s, _: (program.iterate(s)[0], None), state, length=120)[0]
    )
    state = repeat(first_state(program, seed=1))
    game = program.learning.opponents.matches.game
    moves = ((), (1,), (0,), (1, 1), (1, 1, 1))
    start = game.start(jax.random.key(0))
    states = [start]
    for played in moves[1:]:
        at = start
        for move in played:
            at = game.play(jax.random.key(0), at, jnp.int32(move))
        states.append(at)
    agent = program.collector.agent
    obs = jnp.stack([game.observe(at, game.seat(at)) for at in states])
    mask = jnp.stack([game.action_mask(at) for at in states])
    out = agent.forward(state.learner.policy, obs, agent.initial_carry(5), jnp.ones(5, bool), mask)
    np.testing.assert_array_equal(agent.greedy(out), [1, 1, 1, 1, 1])
    known = [0.5 + gamma * 0.5, -(0.5 + gamma * 0.5), 1 - gamma * 0.5, 0.5, -0.5]
    # After a first move of 0, which is hardly seen any more, less is known.
    np.testing.assert_allclose(np.asarray(out.value)[[0, 1, 3, 4]], np.array(known)[[0, 1, 3, 4]], atol=0.1)
    assert float(out.value[2]) > 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"env.name": "gymnax:CartPole-v1"},
            r"`env.name` \(='gymnax:CartPole-v1'\) is not a two-player game",
        ),
        ({"selfplay.groups": 3}, r"`selfplay.groups` \(=3\) must divide the 8 environments of a device"),
        ({"env.wrappers": ("flatten_observation",)}, "`env.wrappers` .* must be empty"),
    ],
)
def test_wrong_configurations(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        resolve(config(**fields), 1)
    assert "\n" not in str(caught.value)


def test_a_pool_larger_than_memory() -> None:
    program = iteration()
    resolved = program.learning.config
    section = dataclasses.replace(resolved.selfplay, pool_size=10_000)
    large = dataclasses.replace(resolved, selfplay=section)
    topology, agent = Topology.of(1), program.collector.agent
    require_memory(resolved, topology, agent.spec, agent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxrl.programs.memory.memory_of", lambda _: 16 * 2**20)
        with pytest.raises(ConfigError, match=r"`selfplay.pool_size` \(=10000\) .* a device has 1[56]"):
            require_memory(large, topology, agent.spec, agent)


_TWO_DEVICES = """
import jax, numpy as np
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests.experience.opponents.self_play import config
from tests.training.test_selfplay import BUSY
found = []
for devices in (1, 2):
    trainer = Trainer(config(**BUSY, num_devices=devices), writer=MultiWriter(()))
    for _ in range(5):
        metrics = trainer.update(trainer.rollout())
    state = jax.device_get((trainer.state.opponents, trainer.state.collector))
    found.append((state, {k: x for k, x in metrics.items() if k.startswith("selfplay/")}))
jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-5), *found)
assert found[0][1]["selfplay/pool"] == 2, found[0][1]
"""


# tests/experience/opponents/ has the opponents, tests/parallel/multi_device/ devices.
@pytest.mark.long
def test_two_devices_have_the_opponents_of_one() -> None:
    processes.succeed("-c", _TWO_DEVICES, devices=2)
