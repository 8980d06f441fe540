"""Tiny programs of every algorithm that the conformance tests run: those that ship, and fixtures."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import algorithms
from jaxrl.algorithms.sequences import Sequences
from jaxrl.config import Config, default_config, resolve
from jaxrl.envs import registry
from jaxrl.envs.base import JaxEnv
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Axis, PyTree, TrainState, Trajectory, marks
from jaxrl.types import Bulk as BulkMark

ENVS, LENGTH, CHUNK = 8, 16, 4
STEPS = ENVS * LENGTH  # of one iteration
ITERATIONS = 3  # of the run of `duties_config`
MASKED = "tests.algorithms.environments:Chance(masked=True)"

_ROLLOUTS = {"rollout_length": LENGTH, "sequence_length": CHUNK}
_MINIBATCHES = {
    **_ROLLOUTS,
    "num_epochs": 2,
    "num_minibatches": 2,
    "schedule": "constant",
    "learning_rate": 1e-2,
}
_REPLAY = {
    "rollout_length": LENGTH,
    "updates_per_rollout": 2,
    # Of two rollouts: so much is drawn that a value that is not finite is among it.
    "capacity": 2 * STEPS,
    "learning_starts": 0,
}
_SEQUENCES = {
    **_REPLAY,
    "batch_size": 6 * ENVS,  # all that are in the ring
    "burn_in": 1,
    "trace_length": 2 * CHUNK,
    "overlap": CHUNK,
    "n_step": 2,
}
_SAC = {
    "prioritised": True,
    **dict.fromkeys(("learning_rate", "critic_rate", "temperature_rate"), 1e-2),
}
# By name: what `algorithm` says, and the fields of its section.
ALGORITHMS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "ppo": ("ppo", _MINIBATCHES),
    "a2c": ("a2c", _MINIBATCHES),
    "pqn": ("pqn", {**_MINIBATCHES, "exploration_fraction": 1.0}),
    # So many draws that each chunk is among them.
    "dqn": (
        "dqn",
        {
            **_REPLAY,
            "batch_size": STEPS,
            "learning_rate": 1e-2,
            "target_period": 3,
            "prioritised": True,
            "dueling": True,
        },
    ),
    "r2d2": ("r2d2", {**_SEQUENCES, "learning_rate": 1e-2, "target_period": 3}),
    "sac": ("sac", {**_REPLAY, **_SAC, "batch_size": STEPS}),
    "recurrent_sac": ("sac", {**_SEQUENCES, **_SAC}),
    "behavior_cloning": (
        "behavior_cloning",
        {**_MINIBATCHES, "data": str(Path(__file__).parent / "demonstrations"), "patience": 2},
    ),
    "dagger": (
        "dagger",
        {
            **_REPLAY,
            "teacher": "solver",
            "trace_length": CHUNK,
            "burn_in": 1,
            "batch_size": 7 * ENVS,  # all that are kept
            "learning_rate": 1e-2,
        },
    ),
    "uniform_dqn": ("tests.algorithms.dqn:UniformDQN", {**_ROLLOUTS, "drawn": 8}),
}
CONTINUOUS = "tests.algorithms.environments:Chance(actions='continuous')"
ENVIRONMENTS = {"sac": CONTINUOUS, "recurrent_sac": CONTINUOUS}  # of the others: MASKED
_SECTIONS = {"recurrent_sac": "sac"}  # of those that are not called like theirs
VALUE_LEARNERS = ("pqn", "dqn", "r2d2", "uniform_dqn")
# They imitate, and learn no value.
IMITATING = ("behavior_cloning", "dagger")
# They step environments; the others learn from files.
COLLECTING = tuple(name for name in ALGORITHMS if name != "behavior_cloning")
# They replay single steps, which have no carry.
_FEED_FORWARD = ("dqn", "sac")


def clock_of(algorithm: str) -> int:
    """By how much an iteration advances the clock: environment steps, or updates."""
    if algorithm in COLLECTING:
        return STEPS
    section = ALGORITHMS[algorithm][1]
    return int(section["num_epochs"] * section["num_minibatches"])


def config_fields(algorithm: str, **fields: Any) -> Any:
    """A tiny configuration; `learner__x` is a field of the algorithm's section, `network__x` of that one."""
    name, section = ALGORITHMS[algorithm]
    config = default_config(name)
    config.algorithm = name
    own = _SECTIONS.get(algorithm, algorithm)
    config[own].update(section)
    core = "none" if algorithm in _FEED_FORWARD else "gru"
    config.num_devices = 1
    config.seed = 3
    config.env.update(name=ENVIRONMENTS.get(algorithm, MASKED), num_envs=ENVS, stagger=False)
    config.network.update(core=core, hidden_sizes=(8,), core_size=8)
    config.normalize.observations = False
    config.stop.steps = 10 * clock_of(algorithm)
    config.log.update(every_steps=2 * clock_of(algorithm), layers=False)
    config.evaluate.update(every_steps=0, episodes=2)
    config.checkpoint.every_steps = 0
    for field, value in fields.items():
        room, _, inner = field.partition("__")
        if inner:
            config[own if room == "learner" else room][inner] = value
        else:
            config[field] = value
    return config


_configs: dict[tuple[str, int, str], Config] = {}


def duties_config(algorithm: str, devices: int = 1) -> Config:
    """With masks and ends of episodes: one for all duties, so that they share what it compiles.

    Schedules depend on the budget: whoever uses it up learns as those who are stopped before.
    """
    clock = clock_of(algorithm)
    budget = {"stop__steps": ITERATIONS * clock, "checkpoint__every_steps": 2 * clock}
    return tiny_config(algorithm, devices, **budget)


def tiny_config(algorithm: str, devices: int = 1, **fields: Any) -> Config:
    """That configuration, frozen and resolved once."""
    # Not the values themselves: 1, 1.0 and True are equal, and not all of them are right.
    key = algorithm, devices, repr(sorted(fields.items()))
    if key not in _configs:
        _configs[key] = resolve(config_fields(algorithm, **fields), devices)
    return _configs[key]


def iteration_of(config: Config, env: JaxEnv | None = None) -> Iteration:
    """The program of one device."""
    env = env or registry.make(config.env.name, config.env.wrappers)
    agent = algorithms.build_agent(config, env.spec)
    return Iteration.build(config, env if config.collects else None, agent, Axis())


def first_state(iteration: Iteration, seed: int = 0) -> TrainState:
    config = iteration.learning.config
    hyperparams = iteration.learning.algorithm.hyperparameters(config)
    return _compiled(iteration.init)(jax.random.key(seed), hyperparams)


@functools.lru_cache(maxsize=4)
def _compiled(init: Callable[..., TrainState]) -> Callable[..., TrainState]:
    return jax.jit(init)


def first_losses(
    iteration: Iteration, more: Callable[[TrainState, Trajectory], Any] = lambda state, trajectory: None
) -> Any:
    """(trajectory, loss, its sums, rows, `more` of it) of the first rollout, all of it one minibatch."""
    algorithm: Any = iteration.learning.algorithm
    every = np.broadcast_to(np.arange(ENVS), (LENGTH // CHUNK, ENVS))

    @jax.jit
    def losses(state: Any) -> Any:
        state, trajectory, _ = iteration.rollout(state)
        prepared = algorithm.prepare(state.learner, trajectory)
        batch = prepared.batch.take(Sequences(jnp.asarray(every)), CHUNK)
        params = state.learner.policy.params
        total, sums = algorithm.loss(prepared.learner, params, batch, None)[:2]
        return trajectory, total, sums, prepared.batch.rows, more(state, trajectory)

    return jax.device_get(losses(first_state(iteration)))


def loud(params: PyTree, factor: float = 100.0) -> PyTree:
    """With the policy's last layer scaled up, if there is one.

    It starts near zero, so that at first all actions are nearly equally likely whatever the memory holds:
    a wrong carry would change no log-probability.
    """

    def scale(path: Any, x: jax.Array) -> jax.Array:
        return x * factor if "logits" in {str(getattr(p, "key", "")) for p in path} else x

    return jax.tree_util.tree_map_with_path(scale, params)


def algorithm_of(config: Config) -> Any:
    """The algorithm of a configuration, on one device."""
    spec = registry.make(config.env.name).spec
    return algorithms.build(config, algorithms.build_agent(config, spec), Axis())


def with_policy(state: TrainState, **fields: Any) -> TrainState:
    policy = dataclasses.replace(state.learner.policy, **fields)
    return dataclasses.replace(state, learner=dataclasses.replace(state.learner, policy=policy))


def copied(tree: PyTree) -> PyTree:
    """Copies that outlive the donation of the original; keys as their data."""

    def copy(x: Any) -> np.ndarray:
        is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        return np.array(jax.random.key_data(x) if is_key else x)

    return jax.tree.map(copy, tree)


def counted(state: TrainState) -> TrainState:
    """Without the rows of large memories, which are scratch where an iteration failed."""
    memory = state.memory
    if memory is None:
        return state
    bulk = dict.fromkeys(marks(type(memory), BulkMark))
    return dataclasses.replace(state, memory=dataclasses.replace(memory, **bulk))


def assert_equal(left: PyTree, right: PyTree) -> None:
    """Bit for bit; NaN equals NaN."""
    jax.tree.map(np.testing.assert_array_equal, copied(left), copied(right))


def assert_close(left: PyTree, right: PyTree, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    def close(x: Any, y: Any) -> None:
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)

    jax.tree.map(close, copied(left), copied(right))


def least_move(algorithm: str, before: PyTree, after: PyTree) -> float:
    """Of the array that has moved least, of those that the algorithm trains, how far it has."""
    untrained = ("value",) if algorithm in IMITATING else ()
    before, after = ({k: v for k, v in x.items() if k not in untrained} for x in (before, after))
    moved = jax.tree.map(lambda x, y: float(np.abs(np.asarray(x) - np.asarray(y)).max()), before, after)
    return min(jax.tree.leaves(moved))
