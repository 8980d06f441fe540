"""Options that every configuration has: an algorithm honours them or refuses them by name."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import algorithms
from jaxrl.algorithms.base import OPTIONS
from jaxrl.algorithms.registry import algorithm_class
from jaxrl.config import ConfigError, check_config
from jaxrl.envs import registry
from jaxrl.metrics.reduction import row
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from jaxrl.types import Axis
from tests.algorithms.test_conformance import advanced, poisoned
from tests.algorithms.tiny import ALGORITHMS, COLLECTING, STEPS, config_fields, tiny_config

ON_HOST = "envpool:CartPole-v1"
# A configuration that asks for each.
ASKED: dict[str, dict[str, Any]] = {
    "normalize.observations": {"normalize__observations": True},
    "normalize.rewards": {"normalize__rewards": True},
    "normalize.clip_rewards": {"normalize__clip_rewards": 0.5},
    "nonfinite": {"nonfinite": "skip"},
    "network.separate_value": {"network__separate_value": True},
    "network.frozen": {"network__frozen": ("params/MLP_0/*",)},
    "network.head": {"network__head": "categorical"},
    "network.policy_gain": {"network__policy_gain": 1.0},
    "network.policy_std": {"network__policy_std": 0.5},
    "host.overlap": {"host__overlap": True, "env__name": ON_HOST},
    "evaluate.modes": {"evaluate__modes": ("sampled",)},
    "selfplay.enabled": {"selfplay__enabled": True, "selfplay__groups": 1, "env__name": "jaxrl:TicTacToe"},
    "network.central_value": {"network__central_value": True, "env__name": "jaxrl:ProbeAgents"},
    "env.num_agents": {"env__name": "jaxrl:ProbeAgents"},
    "curriculum.weights": {
        "env__tasks": ("gymnax:CartPole-v1", "gymnax:Acrobot-v1"),
        "curriculum__stages": ('{"weights": {"CartPole-v1": 2}}',),
    },
}


@functools.cache
def offers(algorithm: str) -> frozenset[str]:
    return algorithm_class(check_config(config_fields(algorithm))).offers  # no environment is made


def refusals() -> list[tuple[str, str]]:
    """Each option, and an algorithm without it; what collects nothing refuses every curriculum."""
    found = {o: a for a in reversed(COLLECTING) for o in OPTIONS if o not in offers(a)}
    return [(algorithm, option) for option, algorithm in found.items()]


def test_every_option_is_asked_for() -> None:
    assert ASKED.keys() == OPTIONS.keys()
    for name, fields in ASKED.items():
        # Several agents alone have a state of the whole.
        wanted = {name, "env.num_agents"} if name == "network.central_value" else {name}
        assert {o for o, asks in OPTIONS.items() if asks(tiny_config("ppo", **fields))} == wanted


@pytest.mark.parametrize(("algorithm", "option"), refusals())
def test_what_is_not_offered_is_refused_by_name(algorithm: str, option: str) -> None:
    with pytest.raises(ConfigError, match=f"^`{option}` is not offered by `algorithm`"):
        Trainer(config_fields(algorithm, **ASKED[option]))


# The engine that honours them is one.
@pytest.mark.slow
def test_options_of_minibatches_are_honoured() -> None:
    options = ("normalize.observations", "normalize.rewards", "nonfinite", "network.frozen")
    together = {name: value for option in options for name, value in ASKED[option].items()}
    runtime = DeviceRuntime(tiny_config("ppo", **together), Topology.of(1))
    runtime.compile()
    start = runtime.learning.initial_state()
    assert not start.learner.policy.obs_stats.count
    state, _, _ = advanced(runtime, start, 2)  # the first only gathers statistics
    assert float(state.learner.policy.obs_stats.count) == 2 * STEPS
    assert float(state.learner.reward_stats.count) == 2 * STEPS
    before, after = start.learner.policy.params, state.learner.policy.params
    moved = jax.tree.map(lambda x, y: bool((x != y).any()), before, after)
    assert not any(jax.tree.leaves(moved.pop("MLP_0")))
    assert all(jax.tree.leaves(moved))
    # A NaN in a reward drops the updates that it reaches, and no statistic keeps it.
    bad, interval, failed = advanced(runtime, poisoned(state, "reward", float("nan")), 1)
    assert not failed
    assert row(interval.metrics)["ppo/skipped"] > 0
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((bad.learner.policy, bad.learner.reward_stats)))
    after, interval, _ = advanced(runtime, bad, 1)
    assert row(interval.metrics)["ppo/skipped"] == 0
    assert int(after.learner.updates) > int(bad.learner.updates)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [n for n in ALGORITHMS if "normalize.clip_rewards" in offers(n)])
def test_rewards_are_clipped(algorithm: str) -> None:
    runtime = DeviceRuntime(tiny_config(algorithm, normalize__clip_rewards=0.5), Topology.of(1))
    state = jax.eval_shape(runtime.learning.initial_state)
    trajectory = jax.eval_shape(runtime._rollout, state)[1]
    given = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), trajectory)
    given = dataclasses.replace(given, reward=given.reward - 7.0)
    learner = runtime.learning.initial_state().learner
    own = algorithms.build(runtime.learning.per_device.config, runtime.agent, Axis())
    np.testing.assert_array_equal(own.scaled_rewards(learner, given)[1], -0.5)  # type: ignore[attr-defined]


@pytest.mark.parametrize("algorithm", [n for n in ALGORITHMS if "network.separate_value" in offers(n)])
def test_options_of_actor_critics_are_honoured(algorithm: str) -> None:
    spec = registry.make(tiny_config(algorithm).env.name).spec

    def agent(**fields: Any) -> Any:
        return algorithms.build_agent(tiny_config(algorithm, **fields), spec)

    shapes = jax.eval_shape(agent().init_params, jax.random.key(0))
    apart = jax.eval_shape(agent(**ASKED["network.separate_value"]).init_params, jax.random.key(0))
    assert len(jax.tree.leaves(apart)) > len(jax.tree.leaves(shapes))
    assert agent(**ASKED["evaluate.modes"]).samples
    with pytest.raises(ConfigError, match=r"`network.head` \(='gaussian'\) needs"):
        agent(network__head="gaussian")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [n for n in ALGORITHMS if "host.overlap" in offers(n)])
def test_collecting_and_learning_overlap(algorithm: str) -> None:
    trainer = Trainer(config_fields(algorithm, **ASKED["host.overlap"]), writer=MultiWriter([]))
    assert trainer.rollout().behaviour is not None
    trainer.close()
