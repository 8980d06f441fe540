"""The trainer's loop: the same numbers whichever way it is driven, when it looks up, and why it stops."""

from __future__ import annotations

import copy
import logging
import pickle
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import jaxrl
from jaxrl.config import ConfigError, resolve
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.reporting.writers import MultiWriter, Writer
from jaxrl.runs.checkpoint import CheckpointError
from jaxrl.training import assembly
from jaxrl.training.assembly import Assembly
from jaxrl.training.trainer import Trainer

STEPS = 8 * 8  # of one iteration


def tiny_config(iterations: int, **overrides: Any) -> ConfigDict:
    config = jaxrl.default_config()
    config.seed = 5
    config.num_devices = 1
    config.env.update(name="gymnax:CartPole-v1", num_envs=8, stagger=False)
    config.network.update(core="none", hidden_sizes=(4,), core_size=4)
    config.normalize.update(observations=True, rewards=True)
    config.ppo.update(rollout_length=8, num_epochs=1, num_minibatches=2, learning_rate=1e-2)
    config.stop.steps = iterations * STEPS
    config.evaluate.update(every_steps=0, episodes=2, modes=("greedy",))
    config.log.update(every_steps=1_000_000, layers=False)
    config.checkpoint.every_steps = 0
    config.update_from_flattened_dict(overrides)
    return config


class Recorder(Writer):
    """Keeps every row and message."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.messages: list[str] = []

    def message(self, line: str) -> None:
        self.messages.append(line)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self.rows.append((step, dict(scalars)))

    def steps_with(self, key: str) -> list[int]:
        """Iterations at which `key` was logged."""
        return [step // STEPS for step, row in self.rows if key in row]


def assert_close(left: Any, right: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), left, right)


@pytest.fixture(scope="module")
def fitted() -> tuple[Trainer, Recorder]:
    recorder = Recorder()
    # 7 iterations: events every 2, 3 and never; the last iteration is on nobody's schedule.
    every = {"log.every_steps": 2 * STEPS, "evaluate.every_steps": 3 * STEPS}
    config = tiny_config(7, **every, **{"network.core": "gru"})
    trainer = Trainer(config, writer=MultiWriter([recorder]))
    with pytest.MonkeyPatch.context() as patch:
        # Nothing moves between host and devices unasked: if something does, the tests of this run say so.
        guarded = jax.transfer_guard("disallow")(DeviceRuntime.advance)
        patch.setattr(DeviceRuntime, "advance", guarded)
        summary = trainer.fit()
    assert (summary["stop_reason"], summary["steps"]) == ("steps", 7 * STEPS)
    return trainer, recorder


@pytest.mark.slow
def test_own_loop_learns_what_fit_learns(fitted: tuple[Trainer, Recorder]) -> None:
    recorder = Recorder()
    trainer = Trainer(tiny_config(7, **{"network.core": "gru"}), writer=MultiWriter([recorder]))
    start = jax.tree.map(np.array, trainer.state.learner.policy.params)
    for _ in range(trainer.config.num_iterations):
        trainer.log(trainer.update(trainer.rollout()))
    assert_close(trainer.state.learner.policy.params, fitted[0].state.learner.policy.params)
    assert (
        max(
            jax.tree.leaves(
                jax.tree.map(lambda x, y: np.abs(x - y).max(), start, trainer.state.learner.policy.params)
            )
        )
        > 1e-2
    )
    assert_close(trainer.state.learner.policy.obs_stats, fitted[0].state.learner.policy.obs_stats)
    assert trainer.steps == 7 * STEPS
    # The first iteration gathers statistics of observations only.
    assert recorder.steps_with("loss/policy") == [2, 3, 4, 5, 6, 7]
    _assert_same_averages(recorder, fitted[1])


def _assert_same_averages(loop: Recorder, fit: Recorder) -> None:
    """The row that fit logs for an interval is the average over its iterations; episodes are summed."""
    rows = [row for _, row in loop.rows]
    previous = 0
    for step, row in fit.rows:
        if "loss/policy" not in row:
            continue
        interval = rows[previous : step // STEPS]
        previous = step // STEPS
        for name in ("loss/value", "ppo/approx_kl", "grad/norm", "ppo/learning_rate"):
            mean = np.mean([r[name] for r in interval if name in r])
            assert row[name] == pytest.approx(mean, rel=1e-3, abs=1e-7), name
        count = sum(r["episode/count"] for r in interval)
        assert row["episode/count"] == count
        assert row["ppo/updates"] == 2 * (previous - 1)
        if count:
            total = sum(r["episode/return"] * r["episode/count"] for r in interval if r["episode/count"])
            assert row["episode/return"] == pytest.approx(total / count)
            # CartPole pays 1 a step; returns are logged raw, whatever scales them (correctness 14).
            assert row["episode/return"] == pytest.approx(row["episode/length"])


@pytest.mark.slow
def test_events_come_at_multiples_of_their_intervals(fitted: tuple[Trainer, Recorder]) -> None:
    recorder = fitted[1]
    # The final state is logged and evaluated though 7 is no multiple of 2 or 3.
    assert recorder.steps_with("loss/policy") == [2, 4, 6, 7]
    assert recorder.steps_with("eval/return") == [3, 6, 7]


@pytest.mark.slow
def test_a_run_without_an_update_says_so(fitted: tuple[Trainer, Recorder]) -> None:
    assert not fitted[1].messages
    dqn = jaxrl.default_config("dqn")
    dqn.num_devices = 1
    dqn.env.update(name="gymnax:CartPole-v1", num_envs=8)
    dqn.network.update(core="none", hidden_sizes=(4,))
    # 257 steps are kept after the fifth rollout of 64, which learns: four learn nothing.
    dqn.dqn.update(rollout_length=8, learning_starts=257, capacity=1024, batch_size=8)
    dqn.stop.steps = 3 * STEPS
    dqn.evaluate.update(every_steps=0, episodes=2)
    dqn.log.layers = False
    normalized = tiny_config(1)  # The first iteration gathers statistics of observations only.
    for config, line in (
        (normalized, "no update was made in 64 steps, the policy is untrained"),
        (dqn, "no update was made in 192 steps, the policy is untrained: learning begins after step 256"),
    ):
        recorder = Recorder()
        Trainer(config, writer=MultiWriter([recorder])).fit()
        assert recorder.messages == [line]


@pytest.mark.slow
def test_stops_at_the_target_return() -> None:
    # An episode of CartPole returns at least 1, so the first evaluation is enough.
    trainer = Trainer(tiny_config(50, **{"stop.return": 1.0, "evaluate.every_steps": 2 * STEPS}))
    summary = trainer.fit()
    assert (summary["stop_reason"], summary["steps"]) == ("return", 2 * STEPS)
    assert int(trainer.state.iteration) == 2
    assert summary["eval_episodes"] == 2


@pytest.mark.slow
def test_evaluations_of_a_run_play_both_ways_or_one() -> None:
    recorder, alone = Recorder(), {"evaluate.modes": ("sampled",), "evaluate.episodes": 8}
    both = {**alone, "evaluate.modes": ("greedy", "sampled")}
    trainer = Trainer(tiny_config(1, **both), writer=MultiWriter([recorder]))
    summary = trainer.fit()
    returns = {mode: trainer.evaluate(sample=mode == "sampled").mean for mode in ("greedy", "sampled")}
    assert summary["eval_returns"] == returns
    better = max(returns, key=lambda mode: returns[mode])
    assert returns["greedy"] != returns["sampled"]
    assert (summary["eval_mode"], summary["eval_return"]) == (better, returns[better])
    assert trainer.evaluate().mode == better
    (row,) = (row for _, row in recorder.rows if "eval/return" in row)
    assert (row["eval/return"], row["eval/length"]) == (returns[better], row[f"eval/{better}/length"])
    assert {mode: row[f"eval/{mode}/return"] for mode in returns} == returns
    # One mode alone has no names of its own, and plays the same episodes.
    recorder = Recorder()
    summary = Trainer(tiny_config(1, **alone), writer=MultiWriter([recorder])).fit()
    assert (summary["eval_mode"], summary["eval_returns"]) == ("sampled", {"sampled": returns["sampled"]})
    assert not any("eval/sampled/return" in row for _, row in recorder.rows)


def test_what_no_trainer_has_is_refused_by_name() -> None:
    trainer = Trainer(tiny_config(1), writer=MultiWriter([]))
    for name, hint in (
        ("learning_rate", r": it is set\(learning_rate=...\)"),
        ("train", r": it is fit\(\)"),
        ("save_checkpoint", r": it is save\(folder\)"),
        ("training_step", r": it is update\(rollout\(\)\)"),
        ("evaluat", "; did you mean `evaluate`[?]"),
    ):
        with pytest.raises(AttributeError, match=f"a trainer has no `{name}` to set{hint}"):
            setattr(trainer, name, 1)
        with pytest.raises(AttributeError, match=f"a trainer has no `{name}`{hint}"):
            getattr(trainer, name)
    trainer.callbacks = trainer.callbacks
    assert repr(trainer) == f"<Trainer: ppo on {trainer.config.env.name}, 0 steps>"
    for job in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(
            TypeError, match=r"neither copied nor pickled: use save\(folder\) and load\(folder\)"
        ):
            job(trainer)


def test_update_needs_a_rollout() -> None:
    trainer = Trainer(tiny_config(1))
    for trajectory in (None, 3):
        with pytest.raises(RuntimeError, match="needs the trajectory of a rollout"):
            trainer.update(trajectory)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Trainer("ppo"), r"`config` \(='ppo'\) must be a configuration, such as jaxrl.load_config"),
        (lambda: jaxrl.make_train({"seed": 1}), "`config` .* must be a configuration"),
        (lambda: Trainer(tiny_config(1), "runs/mine"), r"`folder` .* must be a RunFolder; `save\(folder\)`"),
        (lambda: Trainer(tiny_config(1), callbacks=print), "`callbacks` .* must be jaxrl.Callbacks"),
        (lambda: jaxrl.Callbacks(on_row=3), r"`on_row` \(=3\) must be a function, or None"),
        (lambda: Trainer(tiny_config(1)).evaluate(0), r"`episodes` \(=0\) must be at least 1"),
    ],
)
def test_wrong_arguments_are_one_line(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_no_folder_is_not_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = Trainer(tiny_config(1), writer=MultiWriter([]))
    with pytest.raises(ConfigError, match="must name a folder"):
        trainer.save("")
    with pytest.raises(CheckpointError, match="must name a folder"):
        trainer.load("")
    assert not list(tmp_path.iterdir())


USER_MODULE = """
import flax.linen as nn
import jax.numpy as jnp

from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, TimeStep


class Ones(JaxEnv):
    def __init__(self, reward=1.0):
        self._reward = reward
        self.spec = EnvSpec("Ones", Box.of(0, 1, (3,)), Discrete(2), max_episode_steps=1)

    def reset(self, key):
        return jnp.zeros(()), jnp.ones(3)

    def step(self, key, state, action):
        reward = jnp.asarray(self._reward, jnp.float32)
        return state, TimeStep(jnp.ones(3), reward, jnp.ones((), bool), jnp.zeros((), bool))


class Tripled(nn.Module):
    @nn.compact
    def __call__(self, obs):
        return nn.Dense(7, name="mine")(3.0 * obs)


def encoder(network, space):
    return Tripled()
"""


@pytest.mark.slow
def test_own_environment_and_encoder_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_research_code.py").write_text(USER_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    overrides = {
        "env.name": "my_research_code:Ones(reward=2.5)",
        "network.encoder": "my_research_code:encoder",
    }
    state, metrics = jax.jit(jaxrl.make_train(tiny_config(2, **overrides)))(jax.random.key(0))
    paths = [
        jax.tree_util.keystr(path)
        for path, _ in jax.tree_util.tree_leaves_with_path(state.learner.policy.params)
    ]
    assert any("mine" in path for path in paths), paths
    np.testing.assert_array_equal(metrics["episode/count"], [STEPS, STEPS])
    np.testing.assert_array_equal(metrics["episode/return"], [2.5, 2.5])


def test_memory_is_returned_once_all_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve(tiny_config(1), 1)
    built = Assembly.build(config)
    compiled = []
    monkeypatch.setattr(assembly, "return_memory", lambda: compiled.append(built.runtime.compiled))
    Trainer(config, None, MultiWriter([]), built).fit()
    for thread in threading.enumerate():
        if thread.name == "memory":
            thread.join()
    assert compiled
    assert None not in compiled


def test_unknown_network_is_refused_before_anything_compiles() -> None:
    with pytest.raises(ConfigError, match="did you mean `gru`"):
        Trainer(tiny_config(1, **{"network.core": "grru"}))


def test_display_appears_with_the_first_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    # A second live display, opened before the run's own, would draw over it.
    trainer = jaxrl.Trainer(tiny_config(2))
    assert capsys.readouterr().out == ""
    trainer.log({"episode/return": 1.0, "time/steps_per_second": 1.0})
    assert "CartPole" in capsys.readouterr().out
    trainer.close()


@pytest.mark.slow
def test_the_display_ends_with_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    # What a script prints after `fit`, and warnings of another run, went through the panel of the first one.
    before = logging.getLogger().handlers[:]
    jaxrl.Trainer(tiny_config(2)).fit()
    assert "done: all steps made" in capsys.readouterr().out
    assert logging.getLogger().handlers == before
