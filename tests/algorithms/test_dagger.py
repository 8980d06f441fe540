"""DAgger: who acts, what is labelled, kept and drawn, its gradient and statistics, and what it learns."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.dagger.dagger import DAgger, DAggerState
from jaxrl.config import ConfigError, resolve
from jaxrl.experience.demonstrations import Aggregate
from jaxrl.metrics.reduction import Mean, row
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.reporting.writers import MultiWriter
from jaxrl.runs.folder import RunFolder
from jaxrl.training.callbacks import Callbacks
from jaxrl.training.trainer import Trainer
from jaxrl.types import TrainState
from tests.algorithms.tiny import (
    CHUNK,
    ENVS,
    LENGTH,
    STEPS,
    assert_equal,
    config_fields,
    first_state,
    iteration_of,
    loud,
    tiny_config,
    with_policy,
)
from tests.compiled_trainers import compile_once

RUN: dict[str, Any] = {"learner__teacher": "a run"}


def taught(state: Any, policy: Any, **learner: Any) -> TrainState:
    return dataclasses.replace(state, learner=dataclasses.replace(state.learner, teacher=policy, **learner))


def with_beta(state: TrainState, beta: float) -> TrainState:
    hyperparams = dataclasses.replace(state.learner.hyperparams, beta=jnp.float32(beta))
    return dataclasses.replace(state, learner=dataclasses.replace(state.learner, hyperparams=hyperparams))


@pytest.fixture(scope="module")
def program() -> Any:
    """(program, its compiled rollout, a state whose policy and whose teacher's depend on their memory)."""
    iteration = iteration_of(tiny_config("dagger", **RUN, normalize__observations=True))
    own, other = (first_state(iteration, seed).learner.policy for seed in (0, 1))
    teacher = dataclasses.replace(other, params=loud(other.params, 1000.0))
    state = with_policy(first_state(iteration), params=loud(own.params))
    return iteration, jax.jit(iteration.rollout), taught(state, teacher)


@pytest.mark.slow
def test_the_teacher_labels_every_step_with_a_carry_of_its_own(program: Any) -> None:
    iteration, rollout, state = program
    agent = iteration.learning.algorithm.agent

    @jax.jit
    def alone(acting: Any, carry: Any, trajectory: Any) -> Any:
        def step(carry: Any, xs: Any) -> Any:
            out = agent.forward(acting, xs[0], carry, xs[1], xs[2])
            return out.carry, (carry, agent.greedy(out))

        xs = (trajectory.obs, trajectory.reset, trajectory.action_mask)
        return jax.lax.scan(step, carry, xs)

    carry = agent.initial_carry(ENVS)
    for beta in (0.0, 0.5):
        state, trajectory, _ = rollout(with_beta(state, beta))
        carry, (before, label) = alone(state.learner.teacher, carry, trajectory)
        np.testing.assert_array_equal(trajectory.extras["label"], label)
        assert len(np.unique(label)) == 3
        stored = jax.tree.leaves(trajectory.carry["teacher"])[0]
        np.testing.assert_allclose(stored, jax.tree.leaves(before)[0][::CHUNK], atol=1e-5)
        # The second rollout goes on where the first ended.
        state = dataclasses.replace(state, iteration=state.iteration + 1)


@pytest.mark.slow
def test_beta_decides_who_acts(program: Any) -> None:
    iteration, rollout, state = program
    trajectory = rollout(with_beta(state, 1.0))[1]
    np.testing.assert_array_equal(trajectory.action, trajectory.extras["label"])
    # Without the teacher it is the rollout of the learner's agent alone, bit for bit.
    learner = rollout(with_beta(state, 0.0))[1]
    algorithm = iteration.learning.algorithm
    alone = dataclasses.replace(iteration.collector, agent=algorithm.agent)
    start = dataclasses.replace(state.collector, carry=state.collector.carry["learner"])
    own = dataclasses.replace(iteration, collector=alone)
    plain = jax.jit(own.rollout)(dataclasses.replace(state, collector=start))[1]
    for name in ("obs", "action", "reward", "reset"):
        np.testing.assert_array_equal(getattr(learner, name), getattr(plain, name))
    assert_equal(learner.carry["learner"], plain.carry)
    # What was noted is what the learner said of the label when it acted.
    agree = np.asarray(plain.action == learner.extras["label"])
    np.testing.assert_array_equal(
        np.asarray(learner.extras["log_prob"])[agree], np.asarray(plain.extras["log_prob"])[agree]
    )
    half = rollout(with_beta(state, 0.5))[1]
    share = float((half.action == half.extras["label"]).mean())
    assert 0.5 < share < 0.97


@pytest.mark.slow
def test_beta_falls_with_the_updates(program: Any) -> None:
    iteration, _, state = program
    algorithm = iteration.learning.algorithm
    planned = algorithm.config.total_updates  # over a tenth of which it falls
    found = []
    for share in (0, 0.05, 0.1, 1):
        learner = dataclasses.replace(state.learner, updates=jnp.int32(share * planned))
        found.append(algorithm.scheduled_values(learner)["beta"])
    np.testing.assert_allclose(found, [1, 0.5, 0, 0], atol=1e-6)


@pytest.mark.slow
def test_beta_falls_with_the_clock_of_a_budget_in_seconds(program: Any) -> None:
    iteration, _, state = program
    algorithm = iteration.learning.algorithm
    found = []
    for elapsed in (0.0, 0.05, 0.1, 1.0):  # over a tenth of the budget
        learner = dataclasses.replace(state.learner, elapsed=jnp.float32(elapsed))
        found.append(algorithm.scheduled_values(learner)["beta"])
    np.testing.assert_allclose(found, [1, 0.5, 0, 0], atol=1e-6)


@pytest.mark.slow
def test_nothing_is_learnt_from_an_empty_memory(program: Any) -> None:
    iteration, rollout, state = program
    memory, trajectory = iteration.learning.memory, rollout(state)[1]
    drawn = jax.jit(memory.draw)(memory.init(trajectory), trajectory, jax.random.key(0))
    assert not drawn.ready
    assert not drawn.usable.any()


@pytest.mark.slow
def test_steps_that_do_not_count_are_not_imitated(program: Any) -> None:
    """Each environment has valid steps of its own, so that a draw says where it is from."""
    iteration, rollout, state = program
    memory, trajectory = iteration.learning.memory, rollout(state)[1]
    valid = np.random.default_rng(0).random((LENGTH, ENVS)) < 0.5
    held = jax.jit(memory.add)(
        memory.init(trajectory), dataclasses.replace(trajectory, valid=jnp.asarray(valid))
    )
    drawn = jax.device_get(jax.jit(memory.draw)(held, trajectory, jax.random.key(0)))
    burn_in = len(drawn.obs) - len(drawn.usable)
    seen = 0
    for n in np.flatnonzero(drawn.usable.any(axis=0)):
        (start, env), *_ = np.argwhere((np.asarray(trajectory.obs) == drawn.obs[0, n]).all(axis=-1))
        span = slice(start + burn_in, start + len(drawn.obs))
        np.testing.assert_array_equal(drawn.usable[:, n], valid[span, env])
        seen += 1
    assert seen > 3


@pytest.mark.slow
def test_what_is_drawn_is_what_was_collected_and_crosses_no_seam(program: Any) -> None:
    iteration, rollout, state = program
    plan = iteration.learning.memory.plan
    sequences = dataclasses.replace(plan.draws.sequences, burn_in=3)
    draws = dataclasses.replace(plan.draws, rows=3 * LENGTH, sequences=sequences)
    memory = Aggregate(dataclasses.replace(plan, draws=draws))
    add, draw = jax.jit(memory.add), jax.jit(memory.draw)
    held, history = memory.init(rollout(state)[1]), []
    for number in range(5):
        state, trajectory, _ = rollout(dataclasses.replace(state, iteration=jnp.int32(number)))
        held = add(held, trajectory)
        history.append(jax.device_get(trajectory))
        kept = history[-3:]
        rows = {
            "obs": np.concatenate([x.obs for x in kept]),
            "label": np.concatenate([x.extras["label"] for x in kept]),
            "reset": np.concatenate([x.reset for x in kept]),
            "carry": np.concatenate([jax.tree.leaves(x.carry["learner"])[0] for x in kept]),
        }
        drawn = jax.device_get(draw(held, trajectory, jax.random.key(number)))
        window = 3 + CHUNK
        complete = (len(rows["obs"]) - window) // CHUNK + 1
        assert drawn.usable.all(axis=0).sum() == min(complete * ENVS, 7 * ENVS)
        places = set()
        for n in np.flatnonzero(drawn.usable.all(axis=0)):
            # Observations are random numbers: they tell where a sequence is from.
            (first, env), *_ = np.argwhere((rows["obs"] == drawn.obs[0, n]).all(axis=-1))
            places.add((first, env))
            assert first % CHUNK == 0
            assert first + window <= len(rows["obs"])
            span = slice(first, first + window)
            np.testing.assert_array_equal(rows["obs"][span, env], drawn.obs[:, n])
            np.testing.assert_array_equal(rows["reset"][span, env], drawn.reset[:, n])
            np.testing.assert_array_equal(rows["label"][span, env][3:], drawn.label[:, n])
            carry = jax.tree.leaves(drawn.carry)[0][n]
            np.testing.assert_array_equal(rows["carry"][first // CHUNK, env], carry)
        assert len(places) == min(complete * ENVS, 7 * ENVS)


@pytest.mark.slow
def test_the_gradient_is_that_of_a_plain_loop(program: Any) -> None:
    iteration, rollout, state = program
    algorithm, memory = iteration.learning.algorithm, iteration.learning.memory
    assert isinstance(algorithm, DAgger)
    state, trajectory, _ = rollout(state)
    batch = memory.draw(memory.add(state.memory, trajectory), trajectory, jax.random.key(0))
    learner = algorithm._with_statistics(state.learner, trajectory)
    assert float(learner.policy.obs_stats.count) == STEPS
    burn_in = 1

    def loop(params: Any) -> Any:
        carry, total, count = batch.carry, jnp.float32(0), jnp.float32(0)
        for t in range(burn_in + CHUNK):
            acting = learner.policy if t < burn_in else dataclasses.replace(learner.policy, params=params)
            out = algorithm.agent.forward(acting, batch.obs[t], carry, batch.reset[t], batch.action_mask[t])
            carry = out.carry
            if t >= burn_in:
                usable = batch.usable[t - burn_in]
                total = (
                    total - jnp.where(usable, out.distribution.log_prob(batch.label[t - burn_in]), 0).sum()
                )
                count += usable.sum(dtype=jnp.float32)
        return total / count

    value, wanted = jax.jit(jax.value_and_grad(loop))(learner.policy.params)
    gradient, means = jax.jit(algorithm._gradient)(learner, batch)
    assert float(means["loss"]) == pytest.approx(float(value), rel=1e-5)
    for x, y in zip(jax.tree.leaves(gradient.of_sum), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x * gradient.scale, y, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_statistics_count_a_rollout_once(program: Any) -> None:
    iteration, rollout, state = program
    algorithm, trajectory = iteration.learning.algorithm, rollout(state)[1]
    after = algorithm._with_statistics(state.learner, trajectory)
    assert float(after.policy.obs_stats.count) == STEPS
    mean = np.asarray(trajectory.obs).reshape(STEPS, -1).mean(axis=0)
    np.testing.assert_allclose(np.ravel(after.policy.obs_stats.mean), mean, rtol=1e-4)
    # The second of two draws after a rollout, and the first after the next.
    again = algorithm._with_statistics(dataclasses.replace(after, draws=jnp.int32(1)), trajectory)
    assert float(again.policy.obs_stats.count) == STEPS
    again = algorithm._with_statistics(dataclasses.replace(after, draws=jnp.int32(2)), trajectory)
    assert float(again.policy.obs_stats.count) == 2 * STEPS


@pytest.mark.slow
def test_a_teacher_that_was_not_read_is_noticed(program: Any) -> None:
    iteration, _, state = program
    algorithm = iteration.learning.algorithm
    metrics = {name: Mean.of(jnp.float32(1)) for name in algorithm.watched}
    assert algorithm.is_finite(state.learner, metrics)
    assert not algorithm.is_finite(first_state(iteration).learner, metrics)


@pytest.mark.slow
def test_learns_what_only_the_solver_sees() -> None:
    config = config_fields("dagger", learner__beta_fraction=0.2, learner__learning_rate=2e-2)
    config.env.name = "jaxrl:memory/TMaze(length=2)"
    config.dagger.update(updates_per_rollout=8, capacity=20 * STEPS, trace_length=8, burn_in=0, batch_size=16)
    config.stop.steps = 40 * STEPS
    runtime = DeviceRuntime(resolve(config, 1), Topology.of(1))
    runtime.compile()
    state, interval, failed = runtime.advance(
        runtime.learning.initial_state(), runtime.learning.empty_interval(), 30
    )
    assert not failed
    state, interval, _ = runtime.advance(state, runtime.learning.empty_interval(), 10)
    found = row(interval.metrics)
    assert found["dagger/beta"] == 0
    # Half of the turns are right without memory.
    assert found["env/success_rate"] > 0.95
    assert found["dagger/latest_accuracy"] > 0.95


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"learner__teacher": ""}, r"`dagger.teacher` \(=''\) must name the folder of a run, or be 'solver'"),
        ({"env__name": "gymnax:CartPole-v1"}, "'gymnax:CartPole-v1' has no solver; name the folder of a run"),
        ({"learner__trace_length": 5}, r"`dagger.trace_length` \(=5\) must divide"),
        ({"learner__burn_in": 40}, "is below a batch: 8 environments keep 0 whole sequences of 44 steps"),
    ],
)
def test_bad_input(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Trainer(resolve(config_fields("dagger", **fields), 1), writer=MultiWriter([])).fit()


@pytest.mark.slow
def test_a_run_teaches_another_and_resumes_bitwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_once(monkeypatch)

    def trained(name: str, callbacks: Callbacks[Any] | None = None) -> TrainState:
        run = RunFolder(str(tmp_path / name))
        run.create()
        given: dict[str, Any] = {"learner__teacher": str(tmp_path / "teacher")}
        config = config_fields("dagger", env__name="gymnax:CartPole-v1", **given)
        config.stop.steps = 6 * STEPS
        config.checkpoint.every_steps = 4 * STEPS
        trainer = Trainer(resolve(config, 1), run, MultiWriter([]), callbacks=callbacks or Callbacks())
        try:
            trainer.fit()
        finally:
            run.checkpoints.close()
        return trainer.state

    class Stopped(Exception):
        pass

    def stop(trainer: Trainer, step: int) -> None:
        raise Stopped

    teacher = Trainer(resolve(config_fields("ppo", env__name="gymnax:CartPole-v1"), 1))
    teacher.save(tmp_path / "teacher")
    straight = trained("straight")
    assert isinstance(straight.learner, DAggerState)
    assert_equal(straight.learner.teacher, teacher.state.learner.policy)
    with pytest.raises(Stopped):
        trained("stopped", Callbacks(on_checkpoint=stop))
    assert_equal(trained("stopped"), straight)
