"""Learning computes of its sequences what the agent said when it acted.

Before the first update a ratio of probabilities is 1 and a value is the one that was stored, at every step,
for every core, across ends of episodes inside sequences. A carry, a reset or a minibatch that is off by one
step changes it at once, and nothing else would tell.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import algorithms, envs
from jaxrl.algorithms.minibatches import Minibatches
from jaxrl.config import Config
from jaxrl.envs.host_env import HostOptions
from jaxrl.experience.host.collector import HostCollector, HostCollectorOptions
from jaxrl.experience.host.fused_collector import FusedCollector
from jaxrl.experience.host.stepped_collector import SteppedCollector
from jaxrl.parallel.compilation import without_cache
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Acting, Array, Axis, PyTree, Trajectory
from tests.algorithms.tiny import CHUNK, ENVS, LENGTH, iteration_of, loud, tiny_config

# correctness 33: of ratios, in float32. Values may differ by a few roundings more: no ratio is made of them.
# So may the outputs of a parallel scan or of attention, which add in another order than steps do, and those
# of fast weights, which are divided by their size.
TOLERANCE, LOOSER = 3e-7, 1e-6
PARALLEL = ("mingru", "lru", "s5", "gated_delta", "gtrxl")
CORES = ("lstm", "gru", *PARALLEL, "none")
LEARNERS = ("ppo", "a2c", "pqn", "uniform_dqn")
# A core is the same for all learners; these, which take long to compile, meet one from each family.
ONCE = {"s5": ("ppo", "pqn"), "gated_delta": ("ppo",), "gtrxl": ("ppo", "uniform_dqn")}
ON_HOST = "envpool:CartPole-v1(max_episode_steps=20)"
ROLLOUTS = 3

slow = pytest.mark.slow


def differences(
    config: Config, agent: Any, acting: Acting, trajectories: list[Trajectory]
) -> dict[str, float]:
    """By name of an extra, its largest difference between acting and learning, over all rollouts."""
    algorithm = algorithms.build(config, agent, Axis())
    learner = algorithm.init(jax.random.key(0), algorithm.hyperparameters(config))
    learner = dataclasses.replace(learner, policy=dataclasses.replace(acting, exploration=None))
    of = _of_replay if algorithm.name == "uniform_dqn" else _of_minibatches
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


def _said(out: Any, action: Array | None) -> dict[str, Array]:
    if hasattr(out, "distribution"):
        return {"log_prob": out.distribution.log_prob(action), "value": out.value}
    return {"value": out.value}


def _distance(name: str, x: Array, said: Array) -> Array:
    """|ratio - 1| of probabilities, else the difference relative to the larger of 1 and the value."""
    if name == "log_prob":
        return jnp.abs(jnp.expm1(x - said))
    return jnp.abs(x - said) / jnp.maximum(jnp.abs(said), 1.0)


def on_device(config: Config) -> tuple[Any, Acting, list[Trajectory]]:
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
    return iteration.collector.agent, acting, found


def on_host(config: Config, fused: bool) -> tuple[Any, Acting, list[Trajectory]]:
    factory = envs.make_host(ON_HOST)
    agent = algorithms.build_agent(config, factory.spec)
    algorithm = algorithms.build(config, agent, Axis())
    learner = jax.jit(algorithm.init)(jax.random.key(0), algorithm.hyperparameters(config))
    acting = algorithm.acting(learner)
    acting = dataclasses.replace(acting, params=loud(acting.params))
    env = factory.start(HostOptions(seeds=tuple(range(ENVS)), num_groups=2))
    options = HostCollectorOptions(LENGTH, CHUNK)
    collector: HostCollector = SteppedCollector(agent, env, options)
    if fused:
        traced = env.traced()
        assert traced is not None
        collector = FusedCollector(collector, traced, options, without_cache)  # type: ignore[arg-type]
    keys = [jax.random.split(jax.random.key(2 + i), ENVS) for i in range(ROLLOUTS)]
    found = [collector.collect(None, acting, each)[1] for each in keys]
    env.close()
    return agent, acting, found


def require_same(config: Config, agent: Any, acting: Acting, trajectories: list[Trajectory]) -> None:
    # Ends of episodes inside sequences, and values that differ: otherwise nothing would be seen.
    resets = np.concatenate([t.reset for t in trajectories])
    assert resets.reshape(-1, CHUNK, ENVS)[:, 1:].any()
    for name, x in trajectories[-1].extras.items():
        assert np.asarray(x).std() > 0.01, name
    found = differences(config, agent, acting, trajectories)
    exact = config.network.core not in PARALLEL
    within = {name: TOLERANCE if exact and name == "log_prob" else LOOSER for name in found}
    assert all(x <= within[name] for name, x in found.items()), found


ON_DEVICE = [
    pytest.param(
        algorithm, core, marks=() if (algorithm, core) == ("ppo", "gru") else slow, id=f"{algorithm}-{core}"
    )
    for core in CORES
    for algorithm in ONCE.get(core, LEARNERS)
]


@pytest.mark.parametrize(("algorithm", "core"), ON_DEVICE)
def test_on_the_device(algorithm: str, core: str) -> None:
    config = tiny_config(algorithm, network__core=core)
    require_same(config, *on_device(config))


# Every algorithm with every core that compiles fast, and both of them with both collectors.
ON_HOSTS = [
    pytest.param(
        algorithm, core, (i + j) % 2 == 1, id=f"{algorithm}-{core}-{'fused' if (i + j) % 2 else 'stepped'}"
    )
    for i, algorithm in enumerate(LEARNERS)
    for j, core in enumerate(CORES)
    if algorithm in ONCE.get(core, LEARNERS)
]


@slow
@pytest.mark.parametrize(("algorithm", "core", "fused"), ON_HOSTS)
def test_on_the_host(algorithm: str, core: str, fused: bool) -> None:
    config = tiny_config(algorithm, env__name=ON_HOST, network__core=core)
    require_same(config, *on_host(config, fused))


def carries_by_hand(agent: Any, acting: Acting, trajectories: list[Trajectory]) -> PyTree:
    """The carries before each row of all rollouts, and after the last: [rows + 1, B, ...]."""
    joined = {
        name: jax.tree.map(lambda *x: jnp.concatenate(x), *(getattr(t, name) for t in trajectories))
        for name in ("obs", "reset", "action_mask")
    }
    first = jax.tree.map(lambda x: x[0], trajectories[0].carry)

    def step(carry: PyTree, xs: Any) -> tuple[PyTree, PyTree]:
        return agent.forward(acting, xs["obs"], carry, xs["reset"], xs["action_mask"]).carry, carry

    last, before = jax.jit(lambda: jax.lax.scan(step, first, joined))()
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), before, last)


@pytest.mark.parametrize(
    "algorithm", ["ppo", *(pytest.param(name, marks=slow) for name in ("pqn", "uniform_dqn", "a2c"))]
)
def test_a_carry_of_another_step_is_found(algorithm: str) -> None:
    config = tiny_config(algorithm)
    agent, acting, trajectories = on_device(config)
    carries = carries_by_hand(agent, acting, trajectories)

    def cut(rollout: int, shift: int) -> Trajectory:
        at = rollout * LENGTH + np.arange(0, LENGTH, CHUNK) + shift
        return dataclasses.replace(trajectories[rollout], carry=jax.tree.map(lambda x: x[at], carries))

    np.testing.assert_allclose(
        *(jax.tree.leaves(t.carry)[0] for t in (cut(1, 0), trajectories[1])), atol=1e-6
    )
    for shift in (-1, 1):
        found = differences(config, agent, acting, [cut(1, shift)])
        assert min(found.values()) > 1000 * TOLERANCE, (shift, found)
    # And a reset that comes one step late.
    late = dataclasses.replace(trajectories[1], reset=jnp.roll(trajectories[1].reset, 1, axis=0))
    found = differences(config, agent, acting, [late])
    assert min(found.values()) > 1000 * TOLERANCE, found
