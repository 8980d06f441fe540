"""Differences between what agents say when they act and what learning computes of the same steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms.minibatch_algorithm import MinibatchAlgorithm
from jaxrl.algorithms.minibatches import Minibatches
from jaxrl.algorithms.replay import SequenceBatch, Transitions
from jaxrl.config import Config
from jaxrl.envs.base import Discrete
from jaxrl.experience import memory as memories
from jaxrl.experience.replay import draws
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Acting, Array, PyTree, Trajectory
from tests import rounding
from tests.algorithms.tiny import CHUNK, ENVS, iteration_of, loud

# correctness 33: of ratios. Where logits are equal, the maximum, exponentials, their sum, its logarithm and a
# difference are rounded.
TOLERANCE = 5 * rounding.UNIT
# Sums in another order: of as many terms as a layer is wide, in the encoder, the core and the head, and at
# each step of a sequence. So are the outputs of a parallel scan or of attention, those of fast weights, the
# logarithms of several numbers, which add up, and values.
WIDTH, LONGEST = 8, 1 + 2 * CHUNK
LOOSER = rounding.of_sums(*[WIDTH] * (3 + LONGEST))
# What a carry, a reset or a minibatch of another step changes at the least.
MISTAKE = 3e-4
PARALLEL = ("mingru", "lru", "s5", "gated_delta", "linear_attention", "mamba2", "mlstm", "gtrxl", "ffm")
ROLLOUTS = 3


def differences(algorithm: Any, acting: Acting, trajectories: list[Trajectory]) -> dict[str, float]:
    """By name of an extra, its largest difference between acting and learning, over all rollouts."""
    learner = algorithm.init(jax.random.key(0), algorithm.hyperparameters(algorithm.config))
    learner = dataclasses.replace(learner, policy=dataclasses.replace(acting, exploration=None))
    of = _of_minibatches if isinstance(algorithm, MinibatchAlgorithm) else _of_draws
    of = _of_replay if algorithm.name == "uniform_dqn" else of
    found = [jax.jit(of, static_argnums=0)(algorithm, learner, t) for t in trajectories]
    return {name: max(float(each[name]) for each in found) for name in found[0]}


def _of_minibatches(algorithm: Any, learner: Any, trajectory: Trajectory) -> dict[str, Array]:
    """Through the engine, with a learning rate of 0: every minibatch of the last epoch is a first one."""
    prepared = algorithm.prepare(learner, trajectory)
    rate = jnp.zeros_like(learner.hyperparams.learning_rate)
    frozen = dataclasses.replace(
        prepared.learner, hyperparams=dataclasses.replace(learner.hyperparams, learning_rate=rate)
    )

    def loss(params: PyTree, batch: Any, key: Array) -> tuple[Array, dict[str, Array], PyTree]:
        acting = dataclasses.replace(learner.policy, params=params)
        out = algorithm.agent.apply(acting, batch.obs, batch.carry, batch.reset, batch.action_mask)
        said = _said(out, batch.action)
        total = sum(batch.total(x) for x in said.values())
        return (
            total,
            {"loss/none": total},
            {name: _distance(name, x, batch.rows[name]) for name, x in said.items()},
        )

    engine = Minibatches(algorithm.config, algorithm.agent, algorithm.axis, loss)
    rows = engine(frozen, prepared.batch, jax.random.key(1)).per_row
    assert rows.keys() == trajectory.extras.keys()
    valid = jnp.ones(trajectory.reward.shape, bool) if trajectory.valid is None else trajectory.valid
    return {name: jnp.where(valid, x, 0.0).max() for name, x in rows.items()}


def _of_replay(algorithm: Any, learner: Any, trajectory: Trajectory) -> dict[str, Array]:
    """Of sequences that a memory gives back."""
    memory = algorithm.memory
    state = memory.init(jax.eval_shape(lambda: trajectory))
    sample = memory.draw(memory.add(state, trajectory), trajectory, jax.random.key(1))
    rows = sample.rows
    acting = learner.policy
    out = algorithm.agent.apply(acting, rows["obs"], sample.carry, rows["reset"], rows["action_mask"])
    # The final observations of episodes too: their values are bootstrapped from.
    return {name: _distance(name, x, rows["extras"][name]).max() for name, x in _said(out, None).items()}


def _of_draws(algorithm: Any, learner: Any, trajectory: Trajectory) -> dict[str, Array]:
    """Of the steps that a replay memory draws: single ones, or those of sequences after a stored carry."""
    agent, memory = algorithm.agent, memories.build(algorithm.memory)
    state = memory.add(memory.init(jax.eval_shape(lambda: trajectory)), trajectory)
    drawn = memory.draw(state, trajectory, jax.random.key(1))
    steps = _single(drawn, agent) if isinstance(drawn, Transitions) else _sequences(drawn, memory, state)
    seen = agent.normalize(learner.policy, steps["obs"])
    out = agent.apply(learner.policy, seen, steps["carry"], steps["reset"], steps["mask"])
    out = jax.tree.map(lambda x: x[steps["learnt"]], dataclasses.replace(out, carry=None))
    return {
        name: jnp.where(steps["usable"], _distance(name, x, trajectory.extras[name][steps["at"]]), 0.0).max()
        for name, x in _said(out, steps["action"]).items()
        if name in trajectory.extras
    }


def _single(drawn: Transitions, agent: Any) -> dict[str, Any]:
    """Sequences of one step: their inputs [1, N, ...], and `at`, the row and environment of each."""
    names = {"obs": drawn.obs, "action": drawn.action, "mask": drawn.action_mask, "usable": drawn.usable}
    steps = jax.tree.map(lambda x: x[None], names)
    carry, reset = agent.initial_carry(len(drawn.env)), jnp.zeros_like(steps["usable"])
    return {
        **steps,
        "carry": carry,
        "reset": reset,
        "learnt": slice(None),
        "at": (drawn.row[None], drawn.env),
    }


def _sequences(drawn: Any, memory: Any, state: Any) -> dict[str, Any]:
    """As `_single`, of whole sequences [W, N, ...], of which the rows `learnt` follow the burn-in."""
    if isinstance(drawn, SequenceBatch):
        plan, env, item, action = memory.plan, drawn.env, drawn.row, drawn.action
    else:  # of DAgger, which keeps no record of where it drew
        plan, action = memory.plan.draws, drawn.label
        env, item, _ = draws.draw(plan, memory._places(state), None, jax.random.key(1))
    first, length = plan.sequences.burn_in, plan.sequences.length
    row = item[None] * plan.sequences.interval + first + jnp.arange(length)[:, None]
    steps = {name: getattr(drawn, name) for name in ("obs", "carry", "reset", "usable")}
    learnt = slice(first, first + length)
    return {**steps, "mask": drawn.action_mask, "action": action, "learnt": learnt, "at": (row, env)}


def _said(out: Any, action: Array | None) -> dict[str, Array]:
    if hasattr(out, "distribution"):
        found = {"log_prob": out.distribution.log_prob(action)}
        return found if out.value is None else {**found, "value": out.value}
    return {"value": out.value}


def _distance(name: str, x: Array, said: Array) -> Array:
    """Relative to the larger of 1 and what was said: |ratio - 1| of probabilities, else the difference.

    A logarithm of -70, of an action that was drawn uniformly before learning starts, is rounded to 8e-6.
    """
    difference = jnp.expm1(x - said) if name == "log_prob" else x - said
    return jnp.abs(difference) / jnp.maximum(jnp.abs(said), 1.0)


def on_device(config: Config) -> tuple[Any, Acting, list[Trajectory]]:
    """(the algorithm, what acted, what it collected on the device)."""
    iteration: Iteration = iteration_of(config)
    algorithm = iteration.learning.algorithm

    @jax.jit
    def collect(state: Any, key: Array) -> tuple[Any, Trajectory]:
        return iteration.collector.collect(state, acting, jax.random.split(key, ENVS))[:2]

    learner = jax.jit(algorithm.init)(jax.random.key(0), algorithm.hyperparameters(config))
    acting = algorithm.acting(learner)
    acting = dataclasses.replace(acting, params=loud(acting.params))
    state, found = jax.jit(iteration.collector.init)(jax.random.split(jax.random.key(1), ENVS)), []
    for i in range(ROLLOUTS):
        state, trajectory = collect(state, jax.random.key(2 + i))
        found.append(trajectory)
    return algorithm, acting, found


def require_same(algorithm: Any, acting: Acting, trajectories: list[Trajectory]) -> None:
    # Ends of episodes inside sequences, and values that differ: otherwise nothing would be seen.
    resets = np.concatenate([t.reset for t in trajectories])
    assert resets.reshape(-1, CHUNK, ENVS)[:, 1:].any()
    for name, x in trajectories[-1].extras.items():
        assert np.asarray(x).std() > 0.01, name
    found = differences(algorithm, acting, trajectories)
    config, space = algorithm.config, algorithm.agent.spec.action_space
    exact = config.network.core not in PARALLEL and isinstance(space, Discrete)
    within = {name: TOLERANCE if exact and name == "log_prob" else LOOSER for name in found}
    assert all(x <= within[name] for name, x in found.items()), found
