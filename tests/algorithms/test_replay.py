"""Replay: final observations as rows, what is drawn, and rows that are neither copied nor rolled back."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.parallel.sharding import Topology
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.reporting.writers import MultiWriter
from jaxrl.runs.folder import RunFolder
from jaxrl.training.trainer import Trainer
from jaxrl.types import Axis, TrainState, Trajectory
from tests.algorithms.replay import Sample, UniformReplay
from tests.algorithms.tiny import (
    CHUNK,
    ENVS,
    LENGTH,
    STEPS,
    assert_equal,
    first_state,
    iteration_of,
    tiny_config,
)

LIMIT = 15  # steps of an episode of CartPole that does not fall before
ROLLOUTS = 4
MEBIBYTE = 2**20


@functools.cache
def rollouts(name: str) -> tuple[Any, list[Trajectory]]:
    """(program, rollouts at random)."""
    iteration = iteration_of(tiny_config("uniform_dqn", env__name=name, learner__epsilon=1.0))
    state, found = first_state(iteration), []
    rollout = jax.jit(iteration.rollout)
    for i in range(ROLLOUTS):
        state, trajectory, _ = rollout(dataclasses.replace(state, iteration=jnp.int32(i)))
        found.append(trajectory)
    return iteration, found


def cartpole(state: np.ndarray, action: int) -> np.ndarray:
    """The next state of Barto, Sutton and Anderson's cart and pole, which is its observation, in float64."""
    x, speed, angle, turn = state.astype(np.float64)
    force = 10.0 if action == 1 else -10.0
    pushed = (force + 0.05 * turn**2 * math.sin(angle)) / 1.1
    turning = (9.8 * math.sin(angle) - math.cos(angle) * pushed) / (
        0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1)
    )
    pushing = pushed - 0.05 * turning * math.cos(angle) / 1.1
    return np.array([x + 0.02 * speed, speed + 0.02 * pushing, angle + 0.02 * turn, turn + 0.02 * turning])


@pytest.mark.slow
def test_rows_of_the_device_are_those_of_stepping_by_hand() -> None:
    # From each first observation on, the cart and pole alone say what the following rows are: the last
    # observation of an episode is the row after its last step, and nothing happens in that row.
    _, found = rollouts(f"gymnax:CartPole-v1(max_steps_in_episode={LIMIT})")
    rows = {
        name: np.concatenate([np.asarray(getattr(t, name)) for t in found])
        for name in ("obs", "reset", "action", "reward", "terminated", "truncated", "valid")
    }
    finals = cuts = 0
    for b in range(ENVS):
        expected, begins, is_final, steps = None, True, False, 0
        for t in range(ROLLOUTS * LENGTH):
            at = {name: x[t, b] for name, x in rows.items()}
            where = f"environment {b}, row {t}"
            assert at["reset"] == begins, where
            assert at["valid"] == (not is_final), where
            if expected is not None:
                np.testing.assert_allclose(at["obs"], expected, atol=1e-5, err_msg=where)
            else:
                assert np.abs(at["obs"]).max() <= 0.05, where  # a first observation
            if is_final:
                assert not any(at[name] for name in ("reward", "terminated", "truncated")), where
                expected, begins, is_final, steps = None, True, False, 0
                continue
            expected, begins, steps = cartpole(at["obs"], at["action"]), False, steps + 1
            assert at["reward"] == 1.0, where
            fell = abs(expected[0]) > 2.4 or abs(expected[2]) > 12 * 2 * math.pi / 360
            assert at["terminated"] == fell, where
            assert at["truncated"] == (steps == LIMIT and not fell) or fell, where
            is_final = bool(fell or at["truncated"])
            finals, cuts = finals + is_final, cuts + (is_final and not fell)
    assert finals > cuts > 0


@pytest.mark.slow
def test_next_observation_continues_the_rows() -> None:
    # Of a rollout whose last row ends an episode, it is the final observation.
    _, found = rollouts("tests.algorithms.environments:Chance(end=0.2)")
    ends = 0
    for before, after in itertools.pairwise(found):
        np.testing.assert_array_equal(before.next_obs, after.obs[0])
        done = np.asarray(before.terminated[-1] | before.truncated[-1])
        np.testing.assert_array_equal(~np.asarray(after.valid[0]), done)
        ends += done.sum()
    assert ends > 0


def filled(iteration: Any, found: list[Trajectory], axis: Axis = Axis()) -> tuple[UniformReplay, Any]:  # noqa: B008
    memory = dataclasses.replace(iteration.learning.algorithm.memory, capacity=3 * LENGTH, axis=axis)
    state, add = memory.init(found[0]), jax.jit(memory.add)
    for trajectory in found:
        state = add(state, trajectory)
    return memory, state


@pytest.mark.slow
@pytest.mark.parametrize("added", [1, 3, 4])
def test_what_is_drawn_is_consecutive(added: int) -> None:
    iteration, found = rollouts("tests.algorithms.environments:Chance(end=0.2)")
    memory, state = filled(iteration, found[:added])
    assert int(state.count) == min(added, 3) * LENGTH
    sample: Sample = jax.jit(memory.draw)(state, found[added - 1], jax.random.key(0))
    kept = jax.tree.map(lambda *x: np.concatenate(x), *(t.obs for t in found[max(0, added - 3) : added]))
    obs = np.asarray(sample.rows["obs"])  # [L + 1, N, O], N of environment n % B
    usable, rows = jax.tree.map(np.asarray, (sample.usable, sample.rows))
    seen = set()
    for n in range(obs.shape[1]):
        (start,) = (i for i in range(0, len(kept), CHUNK) if (kept[i, n % ENVS] == obs[0, n]).all())
        np.testing.assert_array_equal(obs[:, n], kept[start : start + CHUNK + 1, n % ENVS])
        seen.add(start)
    # Every chunk but the newest, which has no successor yet, and across the end of the ring.
    assert seen == set(range(0, len(kept) - CHUNK, CHUNK))
    np.testing.assert_array_equal(usable, rows["valid"][:-1])  # no environment was started again
    ends = usable & rows["terminated"][:-1]
    assert ends.any()
    assert not rows["valid"][1:][ends].any()


@pytest.mark.slow
def test_rows_before_a_restart_have_no_successor() -> None:
    iteration, found = rollouts("tests.algorithms.environments:Chance(end=0.0)")
    restarted = dataclasses.replace(found[1], reset=found[1].reset.at[0].set(True))
    memory, state = filled(iteration, [found[0], restarted])
    sample: Sample = jax.jit(memory.draw)(state, restarted, jax.random.key(0))
    before = np.asarray(sample.rows["reset"][1:])
    assert before.any()
    np.testing.assert_array_equal(sample.usable, ~before)


@pytest.mark.slow
def test_devices_draw_the_rows_that_one_draws() -> None:
    # Each environment draws by its own key, which is that of its index over all devices.
    iteration, found = rollouts("tests.algorithms.environments:Chance(end=0.2)")
    whole, state = filled(iteration, found)
    key, half = jax.random.key(0), ENVS // 2
    one = jax.jit(whole.draw)(state, found[-1], key)

    def of_device(i: int) -> Sample:
        part = lambda x: np.asarray(x)[:, i * half : (i + 1) * half]  # noqa: E731

        class Device(Axis):
            def index(self) -> int:
                return i

        mine = [
            dataclasses.replace(
                jax.tree.map(part, dataclasses.replace(t, next_obs=None, last=None)), next_obs=None
            )
            for t in found
        ]
        memory, state = filled(iteration, mine, Device())
        return jax.jit(memory.draw)(state, mine[-1], key)

    parts = [of_device(i) for i in range(2)]

    def by_env(x: Any, envs: int) -> np.ndarray:
        x = np.asarray(x)
        return x.reshape(x.shape[0], -1, envs, *x.shape[2:])

    for name in ("obs", "action", "reward", "terminated", "valid", "reset"):
        joined = np.concatenate([by_env(p.rows[name], half) for p in parts], axis=2)
        np.testing.assert_array_equal(joined, by_env(one.rows[name], ENVS), err_msg=name)


@pytest.mark.slow
def test_feedback_reaches_the_memory() -> None:
    iteration = iteration_of(tiny_config("uniform_dqn"))
    state = first_state(iteration)
    iterate = jax.jit(iteration.iterate)
    errors = []
    for _ in range(3):
        state, _ = iterate(state)
        errors.append(float(state.memory.error))
    assert int(state.memory.draws) == 3 * iteration.learning.algorithm.draws_per_iteration
    assert errors[0] > 0
    assert errors[2] > errors[1] > errors[0]


def abstract_runtime(megabytes: int) -> DeviceRuntime:
    """A run whose memory holds so much; nothing of it is made."""
    numbers = 64
    config = tiny_config(
        "uniform_dqn",
        env__name=f"tests.algorithms.environments:Chance(size={numbers})",
        learner__capacity=megabytes * MEBIBYTE // (4 * numbers * ENVS),
        learner__drawn=2,
    )
    return DeviceRuntime(config, Topology.of(1))


@pytest.mark.slow
def test_update_of_a_loop_of_ones_own_copies_no_memory() -> None:
    # `Trainer.update` and runs with environments on the host go another way than `repeat`.
    learning = (runtime := abstract_runtime(256)).learning
    state = learning.abstract_state()
    _, trajectory, totals = jax.eval_shape(runtime._rollout, state)
    program = learning._update.trace(state, trajectory, totals)
    analysis = program.lower().compile().memory_analysis()
    assert analysis.alias_size_in_bytes > 256 * MEBIBYTE
    assert analysis.temp_size_in_bytes < MEBIBYTE


def trainer(folder: Path, iterations: int, algorithm: str = "uniform_dqn", **fields: Any) -> Trainer:
    run = RunFolder(str(folder))
    run.create()
    config = tiny_config(algorithm, checkpoint__every_steps=2 * STEPS, **fields)
    stop = dataclasses.replace(config.stop, steps=iterations * STEPS)
    return Trainer(dataclasses.replace(config, stop=stop), run, MultiWriter([]))


def trained(folder: Path, iterations: int, algorithm: str = "uniform_dqn", **fields: Any) -> TrainState:
    found = trainer(folder, iterations, algorithm, **fields)
    found.fit()
    assert found.folder is not None
    found.folder.checkpoints.close()
    return found.state


@pytest.mark.slow
def test_checkpoint_holds_the_memory(tmp_path: Path) -> None:
    # A ring that has come round once: oldest rows lie after the newest.
    state = trained(tmp_path, 6)
    assert int(state.memory.cursor) == 2 * LENGTH
    assert int(state.memory.count) == 4 * LENGTH
    again = trainer(tmp_path, 6)
    again.start()
    assert_equal(again.state, state)
    assert np.asarray(again.state.memory.rows["obs"]).any()
