"""The duties of every algorithm: one suite for those that ship and for a DQN from outside."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.metrics.reduction import row
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.reporting.writers import MultiWriter
from jaxrl.runs.checkpoint import state_arrays
from jaxrl.runs.folder import RunFolder
from jaxrl.training import nonfinite
from jaxrl.training.callbacks import Callbacks
from jaxrl.training.trainer import Trainer
from jaxrl.types import TrainState
from tests.algorithms.environments import FORBIDDEN_REWARD
from tests.algorithms.tiny import (
    ALGORITHMS,
    COLLECTING,
    ENVIRONMENTS,
    IMITATING,
    ITERATIONS,
    STEPS,
    VALUE_LEARNERS,
    assert_close,
    assert_equal,
    clock_of,
    config_fields,
    copied,
    counted,
    duties_config,
    iteration_of,
    least_move,
    tiny_config,
    with_policy,
)
from tests.compiled_trainers import assembly_of, compile_once

# They share the code of PPO, of SAC and of R2D2, which have tests of their own.
_ALIKE = ("a2c", "recurrent_sac")


def _each(
    names: Iterable[str], fast: Container[str] = ("ppo",), slow: Container[str] = tuple(ALGORITHMS)
) -> pytest.MarkDecorator:
    """PPO is fast; the others are compiled in the slow tests."""
    others = {x: pytest.mark.slow if x in slow and x not in _ALIKE else pytest.mark.long for x in names}
    marks = {x: () if x in fast else mark for x, mark in others.items()}
    return pytest.mark.parametrize("algorithm", [pytest.param(x, marks=y) for x, y in marks.items()])


each_algorithm = _each(ALGORITHMS)


@functools.cache
def compiled(algorithm: str) -> DeviceRuntime:
    """The program that training compiles."""
    runtime = assembly_of(duties_config(algorithm)).runtime
    assert isinstance(runtime, DeviceRuntime)
    runtime.compile()
    return runtime


# As one program: leaf by leaf, each shape would be one. Of leaves: `tests/compiled_methods.py` says why.
_copy_leaves = jax.jit(lambda leaves: [jnp.copy(x) for x in leaves])


def copy(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, _copy_leaves(leaves))


def advanced(runtime: DeviceRuntime, state: TrainState, count: int) -> tuple[TrainState, Any, bool]:
    """(state, interval, failed) after iterations from a state that is not donated."""
    given = copy(state)
    after, interval, failed = runtime.advance(given, runtime.learning.empty_interval(), count)
    return after, interval, bool(failed)


@each_algorithm
def test_learns_and_reports_what_it_declares(algorithm: str) -> None:
    runtime = compiled(algorithm)
    start = runtime.learning.initial_state()
    state, interval, failed = advanced(runtime, start, 3)
    assert not failed
    assert int(state.iteration) == 3
    assert int(state.learner.updates) == 3 * runtime.learning.per_device.config.updates_per_iteration
    before, after = start.learner.policy.params, state.learner.policy.params
    assert least_move(algorithm, before, after) > 1e-5
    assert {x.dtype for x in jax.tree.leaves(after)} == {jnp.dtype(jnp.float32)}
    found = row(interval.metrics)
    assert all(math.isfinite(value) for value in found.values()), found
    declared = runtime.learning.per_device.metrics
    assert set(found) == set(declared)
    assert {name: type(metric) for name, metric in interval.metrics.items()} == dict(declared)
    own = runtime.learning.algorithm
    assert {name for name, _ in own.highlights} <= set(own.metrics)
    assert own.updates_metric in own.metrics


@pytest.mark.slow
@each_algorithm
def test_learn_reports_the_metrics_of_every_draw(algorithm: str) -> None:
    # `metrics` and `learn` are declared apart: a name in only one of them fails in a run's first row.
    iteration = iteration_of(tiny_config(algorithm, log__layers=True))
    learning = iteration.learning
    # A field of every configuration, on by default, which those from outside of jaxrl need not have.
    if ":" not in ALGORITHMS[algorithm][0]:
        assert any(name.startswith("grad/norm/") for name in learning.algorithm.metrics)
    state = jax.eval_shape(
        iteration.init, jax.random.key(0), learning.algorithm.hyperparameters(learning.config)
    )
    _, trajectory, _ = jax.eval_shape(iteration.rollout, state)

    def learn(state: TrainState, trajectory: Any) -> Any:
        memory = learning.memory.add(state.memory, trajectory)
        experience = learning.memory.draw(memory, trajectory, state.key)
        learned = learning.algorithm.learn(state.learner, experience, state.key)
        return learned, learning.memory.feedback(memory, learned.feedback)

    learned, memory = jax.eval_shape(learn, state, trajectory)
    assert {name: type(x) for name, x in learned.metrics.items()} == dict(learning.algorithm.metrics)
    same = jax.tree.map(lambda x, y: (x.shape, x.dtype) == (y.shape, y.dtype), learned.learner, state.learner)
    assert all(jax.tree.leaves(same))
    assert jax.tree.structure(memory) == jax.tree.structure(state.memory)


@each_algorithm
def test_state_is_donated(algorithm: str) -> None:
    # A state that is not would be held twice.
    runtime = compiled(algorithm)
    state = runtime.learning.initial_state()
    leaves = [x for x in jax.tree.leaves(state) if x.size]
    size = sum(copied(x).nbytes for x in leaves)
    runtime.advance(state, runtime.learning.empty_interval(), 1)
    assert all(x.is_deleted() for x in leaves)
    assert runtime.compiled.memory_analysis().alias_size_in_bytes >= size


@each_algorithm
def test_goes_on_bitwise_from_stored_arrays(algorithm: str) -> None:
    runtime = compiled(algorithm)
    straight, _, _ = advanced(runtime, runtime.learning.initial_state(), 4)
    half, _, _ = advanced(runtime, runtime.learning.initial_state(), 2)
    stored = {name: np.array(x) for name, x in state_arrays.flat(state_arrays.to_arrays(half)).items()}
    abstract = state_arrays.fields(runtime.learning.abstract_state())
    restored = TrainState(**{name: state_arrays.rebuild(name, x, stored) for name, x in abstract.items()})
    assert_equal(restored, half)
    assert_equal(advanced(runtime, restored, 2)[0], straight)


def poisoned(state: TrainState, where: str, value: float) -> TrainState:
    """With a number in the next reward, or the next observation, of environment 2."""
    collector = state.collector
    assert collector is not None
    if where == "observation":
        collector = dataclasses.replace(collector, obs=collector.obs.at[2].set(value))
    else:
        # An agent that needs final observations has the environments one level deeper.
        outer = collector.env_state
        vector = outer.env if hasattr(outer, "is_final") else outer
        env = dataclasses.replace(vector.env, poison=vector.env.poison.at[2].set(value))
        vector = dataclasses.replace(vector, env=env)
        env_state = dataclasses.replace(outer, env=vector) if hasattr(outer, "is_final") else vector
        collector = dataclasses.replace(collector, env_state=env_state)
    return dataclasses.replace(state, collector=collector)


POISONS = [
    ("reward", math.nan, "nan in reward, time step 0 of environment 2, in the rollout of iteration 3"),
    ("observation", math.nan, "nan in observation, time step 0 of environment 2"),
]
# Infinity is looked for where NaN is, whatever the algorithm; and 3e38 is finite, but its square is not.
OF_PPO = [
    ("reward", math.inf, "inf in reward, time step 0 of environment 2, in the rollout of iteration 3"),
    ("reward", 3e38, "inf in loss/value, epoch 1, minibatch [12] of iteration 3"),
]
POISONED = [(name, *poison) for name in COLLECTING if name not in _ALIKE for poison in POISONS]
POISONED += [("ppo", *poison) for poison in OF_PPO] + [("sac", *OF_PPO[1])]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "where", "value", "message"), POISONED)
def test_what_is_not_finite_is_found_and_named(
    algorithm: str, where: str, value: float, message: str
) -> None:
    runtime = compiled(algorithm)
    state, interval, _ = advanced(runtime, runtime.learning.initial_state(), 2)
    bad = poisoned(state, where, value)
    before = copied(counted(bad))
    given = copy(bad)
    after, kept, failed = runtime.advance(given, copy(interval), 3)
    assert bool(failed)
    # As if the iteration had never been: rows of a memory that it wrote do not count.
    assert_equal(counted(after), before)
    assert_equal(kept, interval)
    finding = nonfinite.diagnose(runtime, after)
    assert re.search(message, str(finding)), finding
    # The run goes on from there where the value does not come again.
    good = dataclasses.replace(after, collector=state.collector)
    assert_equal(advanced(runtime, good, 1)[0], advanced(runtime, state, 1)[0])


@pytest.mark.slow
def test_one_update_of_an_iteration_keeps_its_own_learner() -> None:
    # Nothing else rolls it back.
    every = 2 * STEPS - tiny_config("dqn").env.num_envs  # row but the last, which has no next one
    fields = {"updates_per_rollout": 1, "batch_size": every, "prioritised": False, "n_step": 1}
    config = tiny_config("dqn", **{f"learner__{name}": x for name, x in fields.items()})
    runtime = assembly_of(config).runtime
    assert isinstance(runtime, DeviceRuntime)
    runtime.compile()
    state, interval, _ = advanced(runtime, runtime.learning.initial_state(), 2)
    bad = poisoned(state, "reward", math.nan)
    before = copied(counted(bad))
    after, _, failed = runtime.advance(copy(bad), copy(interval), 3)
    assert bool(failed)
    assert_equal(counted(after), before)
    good = dataclasses.replace(after, collector=state.collector)
    found = advanced(runtime, good, 1)[0]
    assert_equal(found, advanced(runtime, state, 1)[0])
    assert int(found.learner.updates) == int(state.learner.updates) + 1


@_each(ALGORITHMS, fast=())
def test_parameters_that_are_not_finite_are_named(algorithm: str) -> None:
    runtime = compiled(algorithm)
    state = runtime.learning.initial_state()
    params = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), state.learner.policy.params)
    bad = with_policy(state, params=params)
    after, _, failed = advanced(runtime, bad, 1)
    assert failed
    assert int(after.iteration) == 0
    assert "nan in parameters, at the start of iteration 1" in str(nonfinite.diagnose(runtime, after))


@_each(sorted(set(COLLECTING) - ENVIRONMENTS.keys()))
def test_forbidden_actions_are_never_taken(algorithm: str) -> None:
    # Also while it explores, and at whatever the agent has learnt.
    runtime = compiled(algorithm)
    state = runtime.learning.initial_state()
    for _ in range(3):
        trajectory = runtime.failed_rollout(state)  # a rollout that donates nothing
        valid = np.ones(trajectory.reward.shape, bool) if trajectory.valid is None else trajectory.valid
        allowed = np.take_along_axis(
            np.asarray(trajectory.action_mask), np.asarray(trajectory.action)[..., None], axis=-1
        )
        assert allowed.all()
        assert np.asarray(trajectory.reward)[valid].min() > FORBIDDEN_REWARD / 2
        assert len(np.unique(trajectory.action)) == 3
        state, _, failed = advanced(runtime, state, 2)
        assert not failed


@_each(VALUE_LEARNERS)
def test_only_collecting_explores(algorithm: str) -> None:
    own = compiled(algorithm).learning.algorithm
    learner = compiled(algorithm).learning.initial_state().learner
    assert float(own.acting(learner).exploration) > 0
    assert own.acting(learner, explore=False).exploration is None
    # What checkpoints, exports and evaluations take.
    assert learner.policy.exploration is None
    assert not own.agent.samples


# The others compute in bfloat16 on the host, below, and learn by the same code.
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "behavior_cloning"])
def test_bfloat16(algorithm: str) -> None:
    runtime = DeviceRuntime(tiny_config(algorithm, network__compute_dtype="bfloat16"), Topology.of(1))
    runtime.compile()
    start = runtime.learning.initial_state()
    state, interval, failed = advanced(runtime, start, 3)
    assert not failed
    assert all(math.isfinite(value) for value in row(interval.metrics).values())
    assert {x.dtype for x in jax.tree.leaves(state.learner.policy.params)} == {jnp.dtype(jnp.float32)}
    assert least_move(algorithm, start.learner.policy.params, state.learner.policy.params) > 1e-5


# tests/programs/test_make_train.py has PPO, and every hyperparameter.
@_each(ALGORITHMS, fast=(), slow=("dqn",))
def test_members_of_a_population_are_single_runs(algorithm: str) -> None:
    runtime = compiled(algorithm)
    config = config_fields(algorithm)
    config.stop.steps = ITERATIONS * clock_of(algorithm)
    train = jaxrl.make_train(config)
    keys = jax.random.split(jax.random.key(0), 2)
    rates = [1e-2, 1e-3]
    hyperparams = jaxrl.hyperparameters(config, learning_rate=rates)
    states, metrics = jax.jit(jax.vmap(train))(keys, hyperparams)
    init = jax.jit(iteration_of(runtime.learning.per_device.config).init)
    places = jax.tree.map(lambda x: x.sharding, runtime.learning.abstract_state())
    for i, key in enumerate(keys):
        first = init(key, jaxrl.hyperparameters(config, learning_rate=rates[i]))
        state = jax.device_put(first, places)
        rows = []
        for _ in range(ITERATIONS):
            state, interval, failed = advanced(runtime, state, 1)
            assert not failed
            rows.append(copied({name: metric.value() for name, metric in interval.metrics.items()}))
        found = jax.tree.map(lambda *x: np.stack(x), *rows)
        member = jax.tree.map(lambda x: x[i], (states, metrics))  # noqa: B023
        assert_close(
            (member[0].learner.policy, member[0].memory, member[1]),
            (state.learner.policy, state.memory, found),
            atol=1e-5,
        )
    loss = metrics["loss/policy" if algorithm in IMITATING else "loss/value"]
    assert not np.allclose(loss[0], loss[1], rtol=1e-3)


@pytest.mark.slow
@each_algorithm
def test_stopped_in_the_middle_it_goes_on_bitwise(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(Exception):
        pass

    def stop(trainer: Trainer, step: int) -> None:
        raise Stopped

    compiled(algorithm)
    compile_once(monkeypatch)
    config = duties_config(algorithm)

    def trained(folder: Path, callbacks: Callbacks = Callbacks()) -> TrainState:  # noqa: B008
        run = RunFolder(str(folder))
        run.create()
        trainer = Trainer(config, run, MultiWriter([]), assembly_of(config), callbacks=callbacks)
        try:
            trainer.fit()
        finally:
            run.checkpoints.close()
        return trainer.state

    straight = trained(tmp_path / "straight")
    with pytest.raises(Stopped):
        trained(tmp_path / "stopped", Callbacks(on_checkpoint=stop))
    assert RunFolder(str(tmp_path / "stopped")).checkpoints.latest_step() == 2 * clock_of(algorithm)
    assert_equal(trained(tmp_path / "stopped"), straight)


# Not DAgger, whose teacher here is the environment's solver: tests/algorithms/test_dagger.py. They share the
# collector: of sequences here, of PPO in tests/programs/test_host_training.py.
@_each([name for name in COLLECTING if name != "dagger"], fast=(), slow=("r2d2",))
def test_trains_on_the_host(algorithm: str) -> None:
    config = config_fields(algorithm, network__compute_dtype="bfloat16")
    config.env.name = f"envpool:{'Pendulum-v1' if algorithm in ENVIRONMENTS else 'CartPole-v1'}"
    config.stop.steps = 4 * STEPS
    trainer = Trainer(config, writer=MultiWriter([]))
    start = copied(trainer.state.learner.policy.params)
    summary = trainer.fit()
    assert summary["steps"] == 4 * STEPS
    assert math.isfinite(summary["eval_return"])
    end = copied(trainer.state.learner.policy.params)
    assert {x.dtype for x in jax.tree.leaves(end)} == {jnp.dtype(jnp.float32)}
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(end))
    assert least_move(algorithm, start, end) > 1e-5
