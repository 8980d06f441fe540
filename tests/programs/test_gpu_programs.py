"""How many kernels programs for GPUs launch, as compiled for an H200 that is not there; see docs/gpu.md."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jaxrl import algorithms
from jaxrl.algorithms import advantage
from jaxrl.diagnostics.launches import Launches, read_launches
from jaxrl.envs import registry
from jaxrl.networks.kernels.cells import GRU, LSTM, Cell
from jaxrl.networks.kernels.recurrent_scan import GPU_UNROLL, recurrent_scan
from jaxrl.parallel import gpus
from jaxrl.parallel.sharding import Topology
from jaxrl.population.programs import Placement, training_program
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Axis, PyTree
from tests.compiled_programs import tiny_config

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not gpus.is_installed(),
        reason="jax-cuda12-plugin, which compiles for NVIDIA GPUs, is not installed: docs/gpu.md",
    ),
]
GPU = Axis(platform="gpu", runs_triton=True)


def compiled(function: object, *arguments: PyTree) -> Launches:
    device = jax.sharding.SingleDeviceSharding(gpus.Gpus("h200", 1).devices()[0])
    on_device = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), arguments)
    return read_launches(jax.jit(function).lower(*on_device).compile().as_text())  # type: ignore[arg-type]


def rollout(name: str = "gymnax:CartPole-v1", **fields: object) -> Launches:
    config = tiny_config(**{"env__num_envs": 1024, "ppo__rollout_length": 32} | fields)
    env = registry.make(name, ())
    agent = algorithms.build_agent(config, env.spec)
    iteration = Iteration.build(config, env, agent, GPU)
    hyperparams = iteration.learning.algorithm.hyperparameters(config)
    state = jax.eval_shape(lambda: iteration.init(jax.random.key(0), hyperparams))
    return compiled(iteration.rollout, state)


@pytest.mark.parametrize(("dense", "most"), [("layers", 7), ("pallas", 4)])
def test_a_rollout_step_of_an_mlp(dense: str, most: float) -> None:
    launches = rollout(
        network__dense=dense,
        network__core="none",
        network__hidden_sizes=(64, 64),
        network__separate_value=True,
        normalize__observations=True,
    )
    step = launches.innermost("rollout")
    assert step is not None
    assert step.turns == 4
    assert step.turns * step.kernels / 32 <= most
    assert launches.conditionals == 0


def test_a_rollout_step_of_an_lstm() -> None:
    launches = rollout(network__core="lstm", network__hidden_sizes=(128,), network__core_size=128)
    step = launches.innermost("rollout")
    assert step is not None
    assert step.turns * step.kernels / 32 <= 11
    assert launches.conditionals == 0


def test_a_rollout_step_of_breakout() -> None:
    launches = rollout(
        "gymnax:Breakout-MinAtar",
        network__encoder="minatar",
        network__core="none",
        network__hidden_sizes=(64,),
    )
    step = launches.innermost("rollout")
    assert step is not None
    assert step.turns == 4
    assert step.turns * step.kernels / 32 <= 9
    assert launches.conditionals == 0


@pytest.mark.parametrize(("cell", "most"), [(LSTM, 7.5), (GRU, 7.0)])
def test_a_step_of_a_recurrent_update(cell: Cell, most: float) -> None:
    length, count, size = 32, 1024, 128
    shape = lambda *sizes: jax.ShapeDtypeStruct(sizes, jnp.float32)  # noqa: E731

    def loss(weight: jax.Array, inputs: jax.Array, carry: PyTree, reset: jax.Array) -> jax.Array:
        return jnp.sin(recurrent_scan(cell, jnp.float32, weight, inputs, carry, reset)[0]).sum()

    launches = compiled(
        jax.grad(loss, argnums=(0, 1)),
        shape(size, cell.gates * size),
        shape(length, count, cell.gates * size),
        {name: shape(count, size) for name in cell.state},
        jax.ShapeDtypeStruct((length, count), jnp.bool_),
    )
    loops = [loop for loop in launches.loops if loop.turns > 1]
    assert [loop.turns for loop in loops] == [length // GPU_UNROLL] * 2
    assert sum(loop.turns * loop.kernels for loop in loops) / length <= most


@pytest.mark.parametrize(("dense", "most", "mebibytes"), [("layers", 53, 400), ("pallas", 36, 40)])
def test_a_minibatch_of_an_mlp(dense: str, most: int, mebibytes: int) -> None:
    config = tiny_config(
        network__dense=dense,
        env__num_envs=1024,
        ppo__rollout_length=32,
        ppo__num_epochs=4,
        ppo__num_minibatches=8,
        network__core="none",
        network__hidden_sizes=(64, 64),
        network__separate_value=True,
    )
    env = registry.make("gymnax:CartPole-v1", ())
    agent = algorithms.build_agent(config, env.spec)
    iteration = Iteration.build(config, env, agent, GPU)
    hyperparams = iteration.learning.algorithm.hyperparameters(config)
    state = jax.eval_shape(lambda: iteration.init(jax.random.key(0), hyperparams))
    launches = compiled(iteration.learning.update, *jax.eval_shape(iteration.rollout, state))
    minibatch = launches.innermost("update")
    assert minibatch is not None
    assert minibatch.turns == 32
    assert minibatch.kernels <= most
    assert minibatch.bytes <= mebibytes * 2**20


def test_advantages() -> None:
    rows = jax.ShapeDtypeStruct((128, 1024), jnp.float32)
    flags = jax.ShapeDtypeStruct((128, 1024), jnp.bool_)
    last = jax.ShapeDtypeStruct((1024,), jnp.float32)
    arguments = (rows, rows, last, flags, flags, rows)
    launches = compiled(lambda *x: advantage.gae(*x, 0.99, 0.95, GPU.unroll), *arguments)
    assert launches.kernels <= 50


def test_members_of_a_population_share_their_kernels() -> None:
    config = tiny_config(env__num_envs=64, ppo__rollout_length=16, network__core="lstm")
    topology = Topology.on(gpus.Gpus("h200", 1).devices()[:1])
    env = registry.make("gymnax:CartPole-v1", ())
    agent = algorithms.build_agent(config, env.spec)
    iteration = Iteration.build(config, env, agent, GPU)
    one, eight = (
        read_launches(training_program(iteration, Placement(n, topology)).trace().lower().compile().as_text())
        for n in (1, 8)
    )
    assert eight.kernels <= 1.2 * one.kernels
    assert eight.conditionals == 0
