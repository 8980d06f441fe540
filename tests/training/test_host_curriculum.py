"""Curricula of Gymnasium environments: what each episode was asked for, and resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from jaxrl.config import ConfigError
from jaxrl.experience.host.stepped_collector import tasks_of_rows
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests.algorithms.tiny import assert_equal
from tests.training.staged_runs import staged_config

ASKED = "gymnasium:tests.experience.host_options:Asked"
T, B = 8, 4
STEPS = T * B
# An even level succeeds; a stage that leaves one out has that of the environment, which does not.
STAGES = (
    {"task": {"gain": [2, 3], "level": 2}, "success": 0.9, "window": 4},
    {"task": {"gain": 5}, "most_steps": 2 * STEPS, "earlier": 0.5},
    {"task": {"level": 4, "gain": 7}, "earlier": 0.0},
)
ITERATIONS = 6


def host_config(*stages: Any, **fields: Any) -> ConfigDict:
    given = [{"least_steps": 0, **stage} for stage in stages or STAGES]
    sections = {
        "env": {"name": ASKED, "num_envs": B, "stagger": False},
        "host": {"num_groups": 2},
        "ppo": {"rollout_length": T, "num_minibatches": 1},
    }
    return staged_config(given, ITERATIONS * STEPS, sections, **fields)


@pytest.mark.slow
def test_episodes_are_what_the_stage_asks_for_and_a_run_goes_on_in_its_stage(tmp_path: Path) -> None:
    trainer = Trainer(host_config(), writer=MultiWriter(()))
    seen: dict[int, set[tuple[float, float]]] = {}
    stages = []
    while trainer.progress.iteration < ITERATIONS:
        before = trainer.state.tasks
        if int(before.stage) == 1 and not (tmp_path / "1").exists():
            trainer.save(tmp_path / "1")
            saved = jax.device_get(before)
        trajectory = trainer.rollout()
        episodes = jax.device_get(trajectory.episodes)
        # What the environment says that it was asked for is what the sampler says of the episode.
        for t, b in np.argwhere(episodes.ended):
            stage = int(episodes.task["stage"][t, b])
            gain, level = (float(episodes.reports[name][t, b]) for name in ("gain", "level"))
            assert episodes.episode_return[t, b] == pytest.approx(3 * gain)
            assert episodes.length[t, b] == 3
            if stage >= 0:
                for name, said, own in (("gain", gain, 1.0), ("level", level, 5.0)):
                    asked = float(episodes.task["task"][name][t, b])
                    assert said == pytest.approx(own if np.isnan(asked) else asked)
            seen.setdefault(stage, set()).add((gain, level))
        row = trainer.update(trajectory)
        stages.append(int(row["curriculum/stage"]))
    assert seen[-1] == {(1.0, 5.0)}  # the first episode of each environment
    assert {level for _, level in seen[0]} == {2.0}
    assert all(2 <= gain <= 3 for gain, _ in seen[0])
    assert len(seen[0]) > 2
    assert seen[1] == {(5.0, 5.0)}
    assert seen[2] == {(7.0, 4.0)}
    assert stages == sorted(stages)
    assert set(stages) == {1, 2, 3} or set(stages) == {2, 3}
    trainer.close()
    resumed = Trainer(host_config(), writer=MultiWriter(()))
    resumed.load(tmp_path / "1")
    assert_equal(saved, resumed.state.tasks)
    # Environments begin anew; what they are asked for is what it was.
    one, other = (jax.device_get(x._runtime._deal_tasks(x.state, 3)) for x in (resumed, _at(tmp_path / "1")))
    assert_equal(one, other)
    resumed.close()


def _at(folder: Path) -> Trainer:
    trainer = Trainer(host_config(), writer=MultiWriter(()))
    trainer.load(folder)
    return trainer


def test_tasks_of_rows_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    begins = rng.random((9, 3)) < 0.4
    dealt = {"stage": rng.integers(0, 5, (9, 3)), "x": rng.normal(size=(9, 3))}
    playing, rows = tasks_of_rows(None, dealt, begins)
    again, later = tasks_of_rows(playing, dealt, begins)
    for name, given in dealt.items():
        for b in range(3):
            current = -1.0
            for found in (rows, later):
                for t in range(9):
                    assert found[name][t, b] == current
                    if begins[t, b]:
                        current = given[t, b]
            assert again[name][b] == current


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "stage", "message"),
    [
        ({}, {"task": {"gian": 1}}, "`task.gian` is no field of the tasks of .* did you mean `gain`"),
        ({}, {"task": {"gain": 11}}, r"`task.gain` \(=11.0\) must lie between 0 and 10"),
        ({}, {"task": {"gain": "big"}}, r"`task.gain` \(=\('big',\)\) must be a number or a range"),
        ({}, {"most_steps": 5}, "none has a `task`"),
        (
            {"env.name": "gymnasium:tests.experience.host_options:Deaf"},
            {"task": {"gain": 1}},
            r"`env.name` \(='gymnasium:.*Deaf'\) takes no tasks",
        ),
        (
            {"env.name": "envpool:CartPole-v1"},
            {"task": {"gain": 1}},
            r"stage 1: `task.gain`: `env.name` \(='envpool:CartPole-v1'\) takes no tasks, .*; `stages`, each",
        ),
        ({"host.overlap": True}, {"task": {"gain": 1}}, r"`host.overlap` \(=True\) must be False with"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(fields: Any, stage: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Trainer(host_config(stage, **fields), writer=MultiWriter(()))
    assert "\n" not in str(caught.value)
