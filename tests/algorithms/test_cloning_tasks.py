"""Behavioural cloning of several tasks: each is normalised by the moments of its own observations."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl import algorithms
from jaxrl.algorithms.behavior_cloning.behavior_cloning import BehaviorCloning
from jaxrl.config import default_config, resolve
from jaxrl.envs import registry
from jaxrl.experience.demonstrations import Episode, write_dataset
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Axis


@pytest.mark.slow
def test_each_task_has_the_statistics_of_its_own_observations(tmp_path: Path) -> None:
    # As acting normalises them. As many tasks as the observation has numbers, so that shapes hide nothing.
    config = default_config("behavior_cloning")
    config.env.update(name="jaxrl:Mixture(tasks=('jaxrl:ProbeMask', 'jaxrl:ProbeMemory'))", num_envs=4)
    config.network.update(core="none", hidden_sizes=(8,))
    config.normalize.observations = True
    config.log.layers = False
    config.behavior_cloning.update(data=str(tmp_path / "data"), rollout_length=32, num_minibatches=1)
    spec = registry.spec_of(config.env.name)
    rng, episodes = np.random.default_rng(0), []
    for task in (0, 1, 1, 0, 1):
        obs = rng.normal(5.0 * task, 1.0 + task, (4, 2)).astype(np.float32)
        last = np.arange(1, 4) == 3
        episodes.append(
            Episode(
                observations={"observation": obs, "task": np.full(4, task, np.int32)},
                actions=np.zeros(3, np.int32),
                rewards=np.zeros(3, np.float32),
                terminations=last,
                truncations=np.zeros(3, bool),
                action_masks=np.ones((3, spec.mask_size), bool),
            )
        )
    write_dataset(tmp_path / "data", episodes, spec, {})
    resolved = resolve(config, 1)
    iteration = Iteration.build(resolved, None, algorithms.build_agent(resolved, spec), Axis())
    algorithm, memory = iteration.learning.algorithm, iteration.learning.memory
    assert isinstance(algorithm, BehaviorCloning)
    state = jax.jit(iteration.init)(jax.random.key(1), algorithm.hyperparameters(resolved))
    drawn = memory.draw(state.memory, None, jax.random.key(0))
    stats = jax.jit(algorithm._with_statistics)(state.learner, drawn.training).policy.obs_stats
    shown = np.asarray(drawn.training.valid)
    for task in (0, 1):
        rows = np.asarray(drawn.training.obs["observation"])[
            shown & (np.asarray(drawn.training.obs["task"]) == task)
        ]
        assert float(stats.count[task]) == len(rows) > 0
        np.testing.assert_allclose(stats.mean[0][task], rows.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(stats.m2[0][task] / len(rows), rows.var(axis=0), rtol=1e-4)
