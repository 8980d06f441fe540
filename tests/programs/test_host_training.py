"""Training on host environments: the same learner, resumed at the beginning of episodes."""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.diagnostics import throughput
from jaxrl.envs import registry
from jaxrl.envs.host_env import HostOptions
from jaxrl.programs import host_start
from tests.programs.host_runs import (
    ENVS,
    LENGTH,
    MODULE,
    STEPS,
    assert_same,
    by_hand,
    nothing_is_left,
    runtime_of,
    tiny_config,
    trainer,
)


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [False, True])
def test_training_is_a_plain_loop_bit_for_bit(overlap: bool) -> None:
    # Deterministic in both modes; with overlap the data are one iteration old, never more.
    config = tiny_config(5, host__overlap=overlap, host__num_groups=1, network__core="lstm")
    run, recorder = trainer(config)
    summary = run.fit()
    assert (summary["stop_reason"], summary["steps"]) == ("steps", 5 * STEPS)
    assert nothing_is_left()
    assert_same(run.state, by_hand(config, 5, staleness=int(overlap)))
    rows = [row for row in recorder.rows if "ppo/updates" in row]
    assert [row["steps"] for row in rows] == [2 * STEPS, 4 * STEPS, 5 * STEPS]
    # No update from trajectories that were collected without statistics of observations.
    assert [row["ppo/updates"] for row in rows] == [2 * (i - 1 - overlap) for i in (2, 4, 5)]
    assert all(0 <= row["time/rollout_wait"] <= 1 for row in rows)
    assert sum(row["episode/count"] for row in rows) > 0
    assert 1 <= summary["eval_return"] <= 20


@pytest.mark.slow
def test_rollouts_take_turns_with_learning_on_a_cpu_unless_asked_for() -> None:
    # Overlap gains nothing where the learner itself needs the cores, and data get older.
    runtime = runtime_of(tiny_config(1))
    _, trajectory, _ = runtime.rollout(runtime.learning.initial_state())
    assert trajectory.behaviour is None
    runtime.close()


@pytest.mark.slow
def test_resumed_at_the_beginning_of_episodes(tmp_path: Path) -> None:
    first, _ = trainer(tiny_config(4), tmp_path)
    first.fit()
    assert first.folder is not None
    first.folder.checkpoints.wait()
    second, recorder = trainer(tiny_config(7), tmp_path)
    second.start()
    assert (second.progress.iteration, second.steps) == (4, 4 * STEPS)
    assert_same(second.state, first.state)
    np.testing.assert_array_equal(jax.random.key_data(second.state.key), jax.random.key_data(first.state.key))
    trajectory = second.rollout()
    assert np.asarray(trajectory.reset[0]).all()  # all environments begin
    spec = registry.make_host(second.config.env.name).spec
    start = functools.partial(host_start.start_numbers, spec, first.state.key)
    seeds = [np.asarray(start(i, jnp.arange(ENVS))[0]) for i in (0, 4)]
    assert len({*seeds[0], *seeds[1]}) == 2 * ENVS  # other episodes than those of the first start
    second.close()
    summary = second.fit()
    assert (summary["steps"], int(second.state.iteration), int(second.state.learner.updates)) == (
        7 * STEPS,
        7,
        12,  # the first iteration makes none
    )
    assert recorder.rows[-1]["checkpoint/step"] == 7 * STEPS


@pytest.mark.slow
def test_wrappers_of_observations() -> None:
    wrappers = ("select_observation(indices=(2, 0))", "flatten_observation")
    factory = registry.make_host("envpool:CartPole-v1", wrappers)
    plain = registry.make_host("envpool:CartPole-v1")
    assert factory.spec.observation_space.shape == (2,)  # type: ignore[union-attr]
    env, bare = (each.start(HostOptions((1, 2))) for each in (factory, plain))
    obs = bare.recv(0).obs
    np.testing.assert_array_equal(env.decode(env.recv(0).obs), obs[:, [2, 0]])
    np.testing.assert_array_equal(factory.decode(obs[None]), obs[None][..., [2, 0]])
    env.close()
    bare.close()


@pytest.mark.slow
def test_what_environments_tell_is_reported() -> None:
    name = "envpool:Breakout-v5(max_episode_steps=12,stack_num=1,img_height=36,img_width=36)"
    config = tiny_config(6, name, normalize__observations=False, log__every_steps=STEPS)
    config.env.update(wrappers=("report(key='lives', per_episode='max')",), success="info.lives >= 5")
    training, recorder = trainer(config)
    training.fit()
    rows = [row for row in recorder.rows if "episode/return" in row]
    assert rows
    assert all(row["env/lives"] == 5 and row["env/success_rate"] == 1 for row in rows)
    assert all(
        row["episode/return_min"] <= row["episode/return"] <= row["episode/return_max"] for row in rows
    )


@pytest.mark.slow
def test_timing_says_what_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "_MATMUL_SIZE", 256)  # what else is measured takes a tenth of the time
    monkeypatch.setattr(throughput, "_PAIRS", 1)
    found = throughput.measure(tiny_config(1, host__fused=False), 1, 0.5)
    assert found["shares"].keys() == {"time/environments", "time/inference", "time/rollout_wait"}
    assert all(0 <= share <= 1 for share in found["shares"].values())
    seconds = found["seconds_per_iteration"]
    assert 0 < seconds["update"] <= seconds["total"] * 1.5
    assert nothing_is_left()


@pytest.mark.slow
def test_actions_are_masked_in_training_and_evaluation() -> None:
    # The environment raises where an action is not allowed, so everything that acts must have seen the masks.
    config = tiny_config(3, f"{MODULE}:Masked(given='method')", host__num_workers=2)
    found, recorder = trainer(config)
    trajectory = found.rollout()
    assert trajectory.action_mask.shape == (LENGTH, ENVS, 4)
    allowed = np.take_along_axis(
        np.asarray(trajectory.action_mask), np.asarray(trajectory.action)[..., None], -1
    )
    assert allowed.all()
    found.update(trajectory)
    assert found.fit()["steps"] == 3 * STEPS
    assert found.evaluate(4, sample=True).episodes == 4
    assert not [row for row in recorder.rows if not np.isfinite(row.get("loss/total", 0.0))]
