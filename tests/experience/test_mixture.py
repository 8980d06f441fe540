"""Several tasks in one policy: rows as of each task alone, statistics task by task, devices and resumes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

import jaxrl
from jaxrl import algorithms
from jaxrl.config import ConfigError, resolve
from jaxrl.config.resolution import largest_device_count
from jaxrl.envs import registry
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.mixture import OBSERVATION, TASK, TaskMixture
from jaxrl.envs.vector import VectorEnv
from jaxrl.envs.vector_mixture import MixtureVectorEnv, vector_env
from jaxrl.experience.device import DeviceCollector
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.networks import normalizer
from jaxrl.programs.learning import environment_keys
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from jaxrl.types import Acting, PyTree
from tests import compiled_trainers, processes
from tests.algorithms.tiny import assert_equal, copied

TASKS = ("gymnax:CartPole-v1", "gymnax:Acrobot-v1", "gymnax:MountainCar-v0")
SHARES = (2, 1, 1)
T, B = 16, 8
# The third has the shortest observation, the first the fewest actions.
SIZES, ACTIONS = (4, 6, 2), (2, 3, 3)


def mixed_config(**fields: Any) -> ConfigDict:
    config = jaxrl.default_config()
    config.num_devices = 1
    config.env.update(tasks=TASKS, task_shares=SHARES, num_envs=B)
    config.network.update(core="gru", hidden_sizes=(4,), core_size=4)
    config.normalize.update(observations=True, rewards=True)
    config.ppo.update(rollout_length=T, num_epochs=1, num_minibatches=2)
    config.stop.steps = 4 * T * B
    config.log.layers = False
    config.evaluate.update(every_steps=0, episodes=8)
    config.update_from_flattened_dict(fields)
    return config


def mixture(wrappers: tuple[str, ...] = ()) -> Any:
    return registry.make(resolve(mixed_config(), 1).env.name, wrappers)


@pytest.mark.slow
def test_a_tasks_rows_are_those_of_the_task_alone() -> None:
    env = mixture(("time_limit(steps=9)",))
    config = resolve(mixed_config(), 1)
    agent = algorithms.build_agent(config, env.spec)
    acting = jax.jit(agent.init)(jax.random.key(1))
    keys = environment_keys(jax.random.key(2), jnp.arange(B))
    later = environment_keys(jax.random.key(3), jnp.arange(B))

    def collect(batch: Any, rows: np.ndarray) -> tuple[PyTree, PyTree]:
        collector = DeviceCollector(
            agent=agent, env=batch, length=T, chunk=T, reports=EpisodeReports.of(env.spec)
        )

        @jax.jit
        def run(acting: Acting) -> tuple[PyTree, PyTree]:
            state = collector.init(keys[rows])
            state, _, _ = collector.collect(state, acting, keys[rows])
            _, trajectory, totals = collector.collect(state, acting, later[rows])
            return trajectory, totals

        return jax.device_get(run(acting))

    batch = vector_env(env, stagger=True)
    assert isinstance(batch, MixtureVectorEnv)
    whole, totals = collect(batch, np.arange(B))
    rows = batch.rows(B)
    assert [list(own) for own in rows] == [[0, 3, 4, 7], [1, 5], [2, 6]]
    assert whole.terminated.any() or whole.truncated.any()
    for i in (0, 2):  # the physics of the one between them take longest to compile
        own = rows[i]
        alone, own_totals = collect(VectorEnv(env.tasks[i], stagger=True), own)
        for name in ("obs", "reward", "terminated", "truncated", "reset", "action", "action_mask", "extras"):
            pairs = zip(
                jax.tree.leaves(getattr(whole, name)), jax.tree.leaves(getattr(alone, name)), strict=True
            )
            for there, here in pairs:
                if name == "extras":  # Products of another number of rows are rounded in another way.
                    np.testing.assert_allclose(there[:, own], here, rtol=1e-5, atol=1e-7)
                else:
                    np.testing.assert_array_equal(there[:, own], here, err_msg=name)
        assert (whole.obs[TASK][:, own] == i).all()
        assert not whole.obs[OBSERVATION][:, own, SIZES[i] :].any()
        assert (whole.obs[OBSERVATION][:, own, : SIZES[i]] != 0).any()
        np.testing.assert_array_equal(whole.action_mask[0, own[0]], np.arange(3) < ACTIONS[i])
        assert (whole.action[:, own] < ACTIONS[i]).all()
        label = f"task/{TASKS[i].partition(':')[2]}/return"
        there, here = totals.tallies[label], own_totals.tallies[label]
        assert (
            (there.value, there.count) == (here.value, here.count) == (own_totals.episode_return, here.count)
        )
        assert here.count == own_totals.count


@pytest.mark.slow
@pytest.mark.parametrize("shares", [SHARES, (9, 5, 3)])
def test_rows_are_the_same_by_slices_and_by_gathers(shares: tuple[int, ...]) -> None:
    env = registry.make(f"jaxrl:Mixture(shares={shares})")
    batch, period = vector_env(env), sum(shares)
    keys = environment_keys(jax.random.key(0), jnp.arange(2 * period))
    actions = jnp.arange(2 * period) % 2

    @jax.jit
    def play(keys: jax.Array, actions: jax.Array) -> PyTree:
        state, obs = batch.reset(keys)
        return obs, batch.step(keys, state, actions)[1]

    whole, part = (jax.device_get(play(keys[:n], actions[:n])) for n in (2 * period, 2 * period - 1))
    np.testing.assert_array_equal(whole[0][TASK], np.tile(env.pattern, 2))
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[:-1], y), whole, part)


@pytest.mark.slow
def test_as_a_single_environment_an_episode_is_of_one_task() -> None:
    env: JaxEnv = mixture()
    jaxrl.check_env(env)
    seen = set()
    for seed in range(12):
        state, obs = jax.jit(env.reset)(jax.random.key(seed))
        _, timestep = jax.jit(env.step)(jax.random.key(seed), state, jnp.int32(1))
        assert int(obs[TASK]) == int(timestep.obs[TASK])
        assert int(env.action_mask(state).sum()) == ACTIONS[int(obs[TASK])]
        seen.add(int(obs[TASK]))
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("count", [3, 10])
def test_statistics_of_tasks_are_those_of_their_rows_alone(count: int) -> None:
    rng = np.random.default_rng(0)
    task = rng.integers(0, count, (25, 7))
    x = rng.normal(loc=100.0 * task[..., None], scale=1.0 + task[..., None], size=(25, 7, 2)).astype(
        np.float32
    )
    mask = rng.random((25, 7)) < 0.8
    obs = {OBSERVATION: jnp.asarray(x), TASK: jnp.asarray(task, jnp.int32)}

    @jax.jit
    def normalize_by_task(obs: Any, mask: Any) -> Any:
        stats = normalizer.init(jax.tree.map(lambda leaf: leaf[0, 0], obs), count)
        stats = normalizer.update(stats, obs, mask, task=obs[TASK])
        return normalizer.normalize(stats, obs, task=obs[TASK])

    @jax.jit
    def scale_by_task(returns: Any, task: Any) -> Any:
        moments = normalizer.update(normalizer.init(returns[0, 0], count), returns, task=task)
        return normalizer.scale_rewards(moments, returns, task=task)

    seen = jax.tree.map(np.asarray, normalize_by_task(obs, mask))
    np.testing.assert_array_equal(seen[TASK], task)
    for i in range(count):
        own = x[mask & (task == i)]
        expected = (x[task == i] - own.mean(0)) / np.sqrt(own.var(0) + 1e-8)
        np.testing.assert_allclose(seen[OBSERVATION][task == i], expected, rtol=2e-4, atol=2e-4)
    scaled = np.asarray(scale_by_task(x[..., 0], obs[TASK]))
    for i in range(count):
        own = x[..., 0][task == i]
        np.testing.assert_allclose(scaled[task == i], own / own.std(), rtol=2e-4)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> Iterator[None]:
    with compiled_trainers.compiled_once():
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, dict[str, float], Path]:
    """Four iterations; saved after two."""
    folder = tmp_path_factory.mktemp("mixture") / "run"
    trainer = Trainer(mixed_config(), writer=MultiWriter(()))
    for iteration in range(4):
        if iteration == 2:
            trainer.save(folder)
        metrics = trainer.update(trainer.rollout())
    return trainer, metrics, folder


@pytest.mark.slow
def test_training_reports_and_evaluates_each_task(trained: tuple[Trainer, dict[str, float], Path]) -> None:
    trainer, _, _ = trained
    stats = trainer.state.learner.policy.obs_stats
    np.testing.assert_array_equal(stats.count, [4 * T * B * share / 4 for share in SHARES])
    assert trainer.state.learner.reward_stats.count.shape == (3,)
    row = trainer._assembly.evaluators(trainer.state.learner.policy, 0, {}).row
    returns = {key: x for key, x in row.items() if re.fullmatch("eval/task/.*/return", key)}
    assert returns.keys() == {f"eval/task/{name.partition(':')[2]}/return" for name in TASKS}
    # An untrained policy: cars and acrobats use up their time.
    assert returns["eval/task/MountainCar-v0/return"] == -200
    assert row["eval/task/MountainCar-v0/length"] == 200
    assert returns["eval/task/CartPole-v1/return"] == row["eval/task/CartPole-v1/length"] > 0
    weights = (4, 2, 2)
    mean = sum(w * x for w, x in zip(weights, returns.values(), strict=True)) / 8
    assert row["eval/return"] == pytest.approx(mean)


@pytest.mark.slow
def test_a_resumed_run_goes_on_bit_for_bit(trained: tuple[Trainer, dict[str, float], Path]) -> None:
    trainer, metrics, folder = trained
    end = copied(trainer.state)
    other = Trainer(mixed_config(), writer=MultiWriter(()))
    other.load(folder)
    for _ in range(2):
        again = other.update(other.rollout())
    assert again == metrics
    assert_equal(end, other.state)


_TWO_DEVICES = """
import jax, numpy as np
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests.experience.test_mixture import mixed_config
states = []
for devices in (1, 2):
    trainer = Trainer(mixed_config(num_devices=devices), writer=MultiWriter(()))
    for _ in range(2):
        trainer.update(trainer.rollout())
    state = jax.device_get(trainer.state)
    states.append((state.collector.obs, state.collector.env_state, state.learner.policy))
jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), *states)
print("equal")
"""


# Rows go by the global index of an environment, above; tests/parallel/multi_device/ has devices.
@pytest.mark.long
def test_two_devices_equal_one() -> None:
    done = processes.run("-c", _TWO_DEVICES, devices=2)
    assert done.stdout.strip().endswith("equal"), done.stderr


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"env.num_envs": 6},
            r"`env.num_envs` \(=6\) on 1 devices must be a multiple of 4 on each, the sum of",
        ),
        (
            {"env.task_shares": (1, 2)},
            r"`env.task_shares` \(=\(1, 2\)\) must be one number for each of the 3",
        ),
        ({"evaluate.episodes": 3}, r"`evaluate.episodes` \(=3\) must be at least 4, the sum of"),
        ({"env.tasks": ()}, r"`env.task_shares` \(=\(2, 1, 1\)\) must be one number for each of the 0"),
        (
            {"env.tasks": (*TASKS[:2], "gymnax:Pendulum-v1")},
            "must all have discrete actions, or the same cont",
        ),
        ({"env.tasks": (*TASKS[:2], "gymnax:Breakout-MinAtar")}, "must have a vector as its observation"),
        ({"env.tasks": (*TASKS[:2], "gymnax:CartPol-v1")}, "unknown environment 'gymnax:CartPol-v1'"),
        ({"env.tasks": (TASKS[0], *TASKS[:2])}, "must hold no element twice"),
    ],
)
def test_what_does_not_fit_is_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        resolve(mixed_config(**fields), 1)
    assert "\n" not in str(caught.value)


def test_tasks_are_spread_evenly_over_the_rows() -> None:
    """Any half of the rows has half of each task."""
    tasks = [registry.make(name) for name in ("gymnax:CartPole-v1", "gymnax:Acrobot-v1")]
    pattern = TaskMixture("test:Mixture", tasks, (8, 2)).pattern
    assert [np.bincount(half, minlength=2).tolist() for half in (pattern[:5], pattern[5:])] == [[4, 1]] * 2


def test_devices_hold_whole_groups_of_tasks() -> None:
    config = mixed_config(num_devices=0, **{"env.num_envs": 24, "ppo.num_minibatches": 2})
    assert largest_device_count(config, 8) == 6
    with pytest.raises(ConfigError, match="on 4 devices must be a multiple of 4 on each"):
        resolve(mixed_config(), 4)


@pytest.mark.slow
def test_one_task_of_all() -> None:
    env = registry.make("jaxrl:Mixture(only='MountainCar-v0')", ("time_limit(steps=5)",))
    assert env.spec.max_episode_steps == 5
    batch = vector_env(env)
    _, obs = batch.reset(jax.random.split(jax.random.key(0), 3))
    np.testing.assert_array_equal(obs[TASK], [2, 2, 2])
    with pytest.raises(ValueError, match="must be one of CartPole-v1, Acrobot-v1, MountainCar-v0"):
        registry.make("jaxrl:Mixture(only='Pong')")
