"""The arithmetic of benchmarks/peers.py: floors, sizes, ratios."""

import sys
from pathlib import Path

import jax
import pytest

from jaxrl import algorithms
from jaxrl.config import default_config, resolve
from jaxrl.envs import registry
from jaxrl.networks import cores

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "peers"))

import outcome
import tables
from works import CORES, WORKS


def test_flops_by_hand():
    actor, critic = 4 * 64 + 64 * 64 + 64 * 2, 4 * 64 + 64 * 64 + 64
    assert WORKS["cartpole-mlp"].flops_per_step == 2 * (actor + critic) * 13
    lstm = 4 * 128 + (128 + 128) * 4 * 128 + 128 * 3
    assert WORKS["cartpole-lstm"].forward_flops == 2 * lstm
    convolution = 8 * 8 * (3 * 3 * 4) * 16
    assert WORKS["pqn-cartpole-mlp"].flops_per_step == 2 * (4 * 256 + 256 * 256 + 256 * 2) * 13
    assert WORKS["minatar-breakout-cnn"].forward_flops == 2 * (convolution + 8 * 8 * 16 * 64 + 64 * 4)


@pytest.mark.parametrize("name", [name for name, work in WORKS.items() if work.has_floor])
def test_our_network_has_the_parameters_that_the_work_counts(name):
    work = WORKS[name]
    c = default_config()
    c.env.name = f"gymnax:{work.env}"
    c.network.encoder = "minatar" if work.network == "cnn" else "mlp"
    c.network.core = work.core
    c.network.hidden_sizes = work.hidden_sizes
    c.algorithm = work.algorithm
    c.network.layer_norm = work.algorithm == "pqn"
    c.network.separate_value = work.network == "mlp" and work.algorithm == "ppo"
    agent = algorithms.build_agent(resolve(c, 1), registry.make(c.env.name).spec)
    shapes = jax.eval_shape(agent.network.init, jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(shapes)) == work.num_parameters


def test_cores_beside_memorax_are_ours_but_those_that_it_lacks():
    assert set(cores.CORES.names()) - set(CORES) == {"none", "gated_delta"}
    assert {WORKS[f"cartpole-{core}-apart"].core for core in CORES} == set(CORES)


def sample(peer, seconds, **fields):
    common = {
        "peer": peer,
        "num_envs": 64,
        "members": 0,
        "versions": {},
        "peak_bytes": 10**9,
        "parameters": 7,
    }
    return (
        common | {"compile_seconds": 1.0, "import_seconds": 2.0, "steps": 1000, "seconds": seconds} | fields
    )


def test_table_of_medians_ratios_and_bounds():
    work = WORKS["cartpole-mlp"]
    samples = [sample("jaxrl", seconds) for seconds in (1, 2, 10)]
    samples += [sample("sb3", seconds) for seconds in (4, 5, 5)]
    # Bounds of 1000 steps/s each: 500 one after the other, which is our median.
    samples.append(
        sample("floor", 1, matmul_flops=1000.0 * work.flops_per_step, env_steps_per_second=1000.0, devices=2)
    )
    record = {"work": work.name, "command": "", "date": "", "samples": samples, "failures": []}
    hardware = {"cpu": "", "cores": 2, "memory_gib": 1, "os": "", "load": ""}
    page = tables.markdown(record | {"hardware": hardware})
    assert "| jaxrl | 500 | 100 to 1,000 | 3 | 1.00 | 1.0 | 2.0 | 1.00 | 7 |" in page
    assert "| sb3 | 200 | 200 to 250 | 3 | 2.50 | 1.0 | 2.0 | 1.00 | 7 |" in page
    assert "| both, one after the other | 500 | 100% |" in page


def test_outcome_is_found_among_other_output(capsys):
    outcome.report(steps=3)
    printed = capsys.readouterr().out
    found = outcome.read(f"a warning\n{printed}another\n")
    assert found is not None
    assert found["steps"] == 3
    assert found["peak_bytes"] > 0
    assert outcome.read("nothing") is None
