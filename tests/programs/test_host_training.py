"""Training on host environments: the same learner, resumed at the beginning of episodes."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

import jaxrl
from jaxrl.config import ConfigError, resolve
from jaxrl.config.errors import RunError
from jaxrl.diagnostics.throughput import measure
from jaxrl.envs import registry
from jaxrl.envs.host_env import HostOptions
from jaxrl.experience.host.collector import HostCollectorOptions
from jaxrl.experience.host.fused_collector import FusedCollector
from jaxrl.experience.host.stepped_collector import SteppedCollector
from jaxrl.metrics.clock import Clock
from jaxrl.parallel.compilation import without_cache
from jaxrl.parallel.sharding import Topology
from jaxrl.programs import host_start
from jaxrl.programs.host_runtime import HostRuntime
from jaxrl.reporting.writers import MultiWriter, Writer
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.signals import Interruption
from jaxrl.training.assembly import Assembly
from jaxrl.training.nonfinite import NonFiniteError
from jaxrl.training.trainer import Trainer
from jaxrl.types import BehaviourPolicy

ENVS, LENGTH = 8, 8
STEPS = ENVS * LENGTH  # of one iteration
MODULE = "gymnasium:tests.envs.host_environments"


class Recorder(Writer):
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self.rows.append(dict(scalars))


def tiny_config(
    iterations: int, name: str = "envpool:CartPole-v1(max_episode_steps=20)", **changes: Any
) -> ConfigDict:
    """`host__overlap=False` sets `host.overlap`."""
    config = jaxrl.default_config()
    config.seed = 5
    config.num_devices = 1
    config.env.update(name=name, num_envs=ENVS)
    config.network.update(core="lstm", hidden_sizes=(4,), core_size=4)
    config.normalize.update(observations=True, rewards=True)
    config.ppo.update(rollout_length=LENGTH, sequence_length=4, num_epochs=1, num_minibatches=2)
    config.ppo.learning_rate = 1e-2
    config.ppo.schedule = "constant"
    config.stop.steps = iterations * STEPS
    config.evaluate.update(every_steps=0, episodes=3)
    config.log.every_steps = 2 * STEPS
    config.checkpoint.every_steps = 0
    config.update_from_flattened_dict({key.replace("__", "."): value for key, value in changes.items()})
    return config


def trainer(config: ConfigDict, folder: Path | None = None) -> tuple[Trainer, Recorder]:
    recorder, run = Recorder(), None
    if folder is not None:
        run = RunFolder(str(folder))
        run.create()
    return Trainer(config, run, MultiWriter([recorder])), recorder


def learned(state: Any) -> list[np.ndarray]:
    parts = (
        state.learner.policy.params,
        state.learner.opt_state,
        state.learner.policy.obs_stats,
        state.learner.reward_stats,
    )
    return [np.asarray(x) for x in jax.tree.leaves(parts)]


def assert_same(left: Any, right: Any) -> None:
    for x, y in zip(learned(left), learned(right), strict=True):
        np.testing.assert_array_equal(x, y)


def nothing_is_left() -> bool:
    return not [t for t in threading.enumerate() if t.name in ("actor", "player")]


def runtime_of(config: ConfigDict) -> HostRuntime:
    return HostRuntime(resolve(config, 1), Topology.of(1), Clock(), lambda: False)


def by_hand(config: ConfigDict, iterations: int, staleness: int) -> Any:
    """A plain loop: roll out with the parameters of `staleness` updates ago, learn, and again."""
    runtime = runtime_of(config)
    sharded, resolved = runtime.learning, runtime.learning.learning.config
    state, index = sharded.initial_state(), jnp.arange(ENVS)
    seeds, cuts = host_start.start_numbers(runtime.spec, state.key, 0, index)
    options = HostOptions(tuple(map(int, seeds)), resolved.host.num_groups, 0, 60.0, tuple(map(int, cuts)))
    env = registry.make_host(resolved.env.name).start(options)
    how = HostCollectorOptions(LENGTH, resolved.sequence_length, staggered=True)
    traced = env.traced()
    assert traced is not None
    collector = FusedCollector(SteppedCollector(runtime.agent, env, how), traced, how, without_cache)
    runtime.compile()
    interval, seen = sharded.empty_interval(), []
    for i in range(iterations):
        seen.append(jax.tree.map(jnp.copy, state.learner.policy))
        keys = host_start.action_keys(state.key, i, index)
        acting = seen[max(0, i - staleness)]
        _, trajectory, totals = collector.collect(None, acting, keys)
        if staleness:
            trajectory = dataclasses.replace(trajectory, behaviour=BehaviourPolicy(acting.obs_stats))
        totals = jax.tree.map(lambda x: x[None], totals)
        state, interval, _ = runtime.compiled(state, interval, trajectory, totals)
    env.close()
    return state


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [False, True])
def test_training_is_a_plain_loop_bit_for_bit(overlap: bool) -> None:
    # Deterministic in both modes; with overlap the data are one iteration old, never more.
    config = tiny_config(5, host__overlap=overlap, host__num_groups=1)
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
def test_fused_rollouts_learn_the_same() -> None:
    found = []
    for fused in (True, False):
        run, recorder = trainer(tiny_config(5, host__fused=fused))
        run.fit()
        found.append(learned(run.state))
        told = {name for row in recorder.rows for name in row}
        assert told >= {"time/rollout_wait"}
        assert told.isdisjoint({"time/environments", "time/inference"}) == fused
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4)


@pytest.mark.slow
def test_own_loop_and_fit_learn_the_same() -> None:
    config = tiny_config(4, host__overlap=False)
    fitted, _ = trainer(config)
    fitted.fit()
    run, _ = trainer(config)
    for _ in range(4):
        trajectory = run.rollout()
        assert trajectory.reward.shape == (LENGTH, ENVS)
        metrics = run.update(trajectory)
        run.log(metrics)
    run.close()
    assert nothing_is_left()
    for x, y in zip(learned(run.state), learned(fitted.state), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


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
    np.testing.assert_array_equal(second.state.learner.discounted_return, np.zeros(ENVS))
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
def test_resuming_is_deterministic(tmp_path: Path) -> None:
    config = {"host__overlap": False, "checkpoint__every_steps": 2 * STEPS, "checkpoint__keep": 9}
    run, _ = trainer(tiny_config(2, **config), tmp_path)
    run.fit()
    again = []
    for folder in ("a", "b"):
        import shutil

        shutil.copytree(tmp_path / "checkpoints", tmp_path / folder / "checkpoints")
        resumed, _ = trainer(tiny_config(4, **config), tmp_path / folder)
        resumed.fit()
        again.append(resumed.state)
    assert_same(*again)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", "raised RuntimeError: the motor is on fire"),
        pytest.param("nan", "an observation with NaN or infinity", marks=pytest.mark.slow),
        pytest.param("shape", "an observation of shape (2,), its space says (3,)", marks=pytest.mark.slow),
        pytest.param("hang", "did not answer within 1 s", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_failing_environment_ends_the_run_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, message: str
) -> None:
    # The fault waits for the environment with seed 3 to reach step 5 of its episode.
    monkeypatch.setattr(
        "jaxrl.programs.host_start.start_numbers",
        lambda spec, key, iteration, index: (index, index + 1),
    )
    name = f"{MODULE}:Faulty(fault={fault!r})"
    run, _ = trainer(tiny_config(4, name, ppo__rollout_length=4, host__timeout=1.0), tmp_path)
    with pytest.raises(RunError) as caught:
        run.fit()
    assert str(caught.value).startswith(f"{name}, environment 3, step 5: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert nothing_is_left()
    assert run.folder is not None
    # Step 5 is in the second rollout, so that one iteration is what can be saved.
    assert run.folder.checkpoints.latest_step() == run.steps == 4 * ENVS
    assert int(run.state.iteration) == 1


@pytest.mark.slow
def test_environment_that_fails_in_an_evaluation(tmp_path: Path) -> None:
    changes = {"evaluate__unseen": f"{MODULE}:HangInC", "host__timeout": 0.5, "host__num_workers": 2}
    run, _ = trainer(tiny_config(2, f"{MODULE}:Count", **changes), tmp_path)
    with pytest.raises(RunError, match=r"HangInC, environments? \d.* step 1: did not answer within 0.5 s"):
        run.fit()
    assert run.folder is not None
    assert run.folder.checkpoints.latest_step() == 2 * STEPS
    assert nothing_is_left()


@pytest.mark.slow
def test_exploding_parameters_are_named_by_layer() -> None:
    run = Trainer(tiny_config(4, ppo__learning_rate=3e38), debug=True)
    with pytest.raises(NonFiniteError, match="of iteration 2; first layer: .*; operation: ") as raised:
        run.fit()
    assert "epoch 1, minibatch 2" in str(raised.value)
    assert run.progress.iteration == int(run.state.iteration) == 1
    assert nothing_is_left()


@pytest.mark.slow
def test_rollback_starts_the_environments_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = tiny_config(5, nonfinite="rollback", checkpoint__every_steps=2 * STEPS)
    run, _ = trainer(config, tmp_path)
    rollout, poisoned = HostRuntime.rollout, []

    def poison(self: HostRuntime, state: Any) -> Any:
        state, trajectory, totals = rollout(self, state)
        if int(state.iteration) == 3 and not poisoned:
            poisoned.append(trajectory)
            trajectory = trajectory.replace(reward=trajectory.reward * jnp.nan)
        return state, trajectory, totals

    monkeypatch.setattr(HostRuntime, "rollout", poison)
    assert run.fit()["steps"] == 5 * STEPS
    assert "iteration 4 was not finite: back to step 128" in caplog.text
    assert all(np.isfinite(x).all() for x in learned(run.state))


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.0, pytest.param(8.0, marks=pytest.mark.slow)])
def test_signal_is_answered_within_a_rollout(tmp_path: Path, after: float) -> None:
    # Not only between iterations, which may last minutes; also while the environments start.
    folder, interruption = RunFolder(str(tmp_path)), Interruption()
    folder.create()
    config = resolve(tiny_config(50, f"{MODULE}:Slow", host__num_workers=2), 1)
    run = Trainer(config, folder, MultiWriter([Recorder()]), Assembly.build(config, interruption))
    threading.Timer(after, lambda: setattr(interruption, "signum", 15)).start()
    summary = run.fit()
    assert (summary["stop_reason"], run.interrupted) == ("SIGTERM", True)
    assert run.folder is not None
    assert run.folder.checkpoints.latest_step() == run.steps == summary["steps"]
    assert nothing_is_left()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"host__num_groups": 3}, r"`host.num_groups` \(=3\) must divide `env.num_envs` \(=8\)"),
        ({"host__num_workers": 3}, r"`host.num_groups` \(=2\) must divide `host.num_workers` \(=3\)"),
        ({"env__wrappers": ("time_limit(steps=3)",)}, "wrappers of observations work"),
        ({"env__name": "envpool:CartPol-v1"}, "did you mean"),
        ({"evaluate__unseen": "envpool:Acrobot-v1"}, "`evaluate.unseen` .* has another observation_space"),
    ],
)
def test_bad_input(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        resolve(tiny_config(1, **changes), 1)
    assert "\n" not in str(caught.value)


def test_pure_training_function_needs_device_environments() -> None:
    with pytest.raises(ConfigError, match="make_train needs a device environment"):
        jaxrl.make_train(tiny_config(1))


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
@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, True])
def test_what_environments_tell_is_reported(fused: bool) -> None:
    name = "envpool:Breakout-v5(max_episode_steps=12,stack_num=1,img_height=36,img_width=36)"
    config = tiny_config(6, name, host__fused=fused, normalize__observations=False, log__every_steps=STEPS)
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
def test_timing_says_what_limits() -> None:
    found = measure(tiny_config(1, host__fused=False), 1, 0.5)
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
