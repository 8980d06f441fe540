"""Faults in training on host environments: each is one line, and leaves nothing running."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.config import ConfigError, resolve
from jaxrl.config.errors import RunError
from jaxrl.programs.host_runtime import HostRuntime
from jaxrl.reporting.writers import MultiWriter
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.signals import Interruption
from jaxrl.training.assembly import Assembly
from jaxrl.training.trainer import Trainer
from tests.programs.host_runs import (
    ENVS,
    MODULE,
    STEPS,
    Recorder,
    learned,
    nothing_is_left,
    tiny_config,
    trainer,
)


# What else an environment may do wrong is in tests/envs/test_gymnasium.py; one that hangs in an evaluation is
# below, and one that is stepped alone in tests/envs/test_worker_lifetimes.py.
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", "raised RuntimeError: the motor is on fire"),
        pytest.param("hang", "did not answer within 1 s", marks=pytest.mark.long),
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


class SignalsInPhase(Recorder):
    """Sends a signal half a second after a phase has begun."""

    def __init__(self, phase: str, interruption: Interruption) -> None:
        super().__init__()
        self._phase, self._interruption = phase, interruption

    def status(self, phase: str) -> None:
        if phase.startswith(self._phase):
            threading.Timer(0.5, lambda: setattr(self._interruption, "signum", 15)).start()


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["compiling", "training"])
def test_signal_is_answered_within_a_rollout(tmp_path: Path, phase: str) -> None:
    # Not only between iterations, which may last minutes; also while the environments start.
    folder, interruption = RunFolder(str(tmp_path)), Interruption()
    folder.create()
    config = resolve(tiny_config(50, f"{MODULE}:Slow", host__num_workers=2), 1)
    writer = MultiWriter([SignalsInPhase(phase, interruption)])
    run = Trainer(config, folder, writer, Assembly.build(config, interruption))
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
