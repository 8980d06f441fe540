"""A minibatch of host environments may hold no transition: it must not teach a NaN."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests.programs.host_runs import Recorder, tiny_config


@pytest.mark.slow
def test_iteration_without_a_transition_teaches_nothing() -> None:
    # One environment, one step: after an episode's end the only row of a rollout is no transition.
    config = tiny_config(
        14,
        "envpool:CartPole-v1(max_episode_steps=5)",
        env__num_envs=1,
        env__stagger=False,
        host__num_groups=1,
        ppo__rollout_length=1,
        ppo__sequence_length=1,
        ppo__num_minibatches=1,
        log__every_steps=1,
        stop__steps=14,
    )
    recorder = Recorder()
    trainer = Trainer(config, writer=MultiWriter([recorder]))
    summary = trainer.fit()
    rows = [row for row in recorder.rows if "ppo/updates" in row]
    # Episodes of five steps, each followed by a row that does not count; the first only gathers statistics.
    made = [int(iteration % 6 != 0) for iteration in range(1, 15)]
    made[0] = 0
    assert [int(row["ppo/updates"]) for row in rows] == np.cumsum(made).tolist()
    assert summary["stop_reason"] == "steps"
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(trainer.state.learner.policy))
    assert all(np.isfinite(x) for row in rows for name, x in row.items() if not name.startswith("time"))
