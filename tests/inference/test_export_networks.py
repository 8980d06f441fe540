"""Exports of one's own networks and of those over graphs, and parameters that acting does not need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms import AuxiliaryLoss
from jaxrl.config.errors import RunError
from jaxrl.inference import PolicyFunction, formats
from jaxrl.inference import export as exporting
from jaxrl.inference.numpy_policy import NumpyPolicy
from tests.inference.runs import policy_of


class Doubled(nn.Module):
    """Features of a user's own."""

    sized: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        # `float` needs a number.
        return nn.Dense(8)(obs * (float(obs.shape[1]) if self.sized else 2))


NOTHING_TO_ACT_BY = AuxiliaryLoss(
    lambda params, features, out, batch: (features @ params["weight"], {}),
    init=lambda key, size, spec: {"weight": jnp.zeros(size)},
)


def doubled(network: Any, space: Any) -> nn.Module:
    return Doubled()


def stubborn(network: Any, space: Any) -> nn.Module:
    return Doubled(sized=True)


class Sorted(nn.Module):
    """Features by an operation that ONNX graphs of this package do not have."""

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        return nn.Dense(8)(jnp.sort(obs))


def in_order(network: Any, space: Any) -> nn.Module:
    return Sorted()


def test_parameters_of_an_auxiliary_loss_are_left_out_and_wrong_inputs_refused(tmp_path: Path) -> None:
    policy = policy_of(
        env__name="jaxrl:ProbeMask",
        network__core="none",
        ppo__auxiliary_loss="tests.inference.test_export_networks:NOTHING_TO_ACT_BY",
    )
    assert set(policy.state.params) > {"auxiliary"}
    said = exporting.write([policy], PolicyFunction.of(policy), tmp_path, "numpy")
    assert said["arrays"].keys() == NumpyPolicy(tmp_path)._arrays.keys()
    assert not [name for name in said["arrays"] if "auxiliary" in name]
    numpy_policy = NumpyPolicy(tmp_path)
    obs, *rest = policy_inputs = PolicyFunction.of(policy).example(1)
    assert numpy_policy(*policy_inputs)["action"].shape == (1,)
    with pytest.raises(ValueError, match="`obs` must be finite"):
        numpy_policy(np.asarray(obs) * np.nan, *rest)
    with pytest.raises(ValueError, match="`action_mask` is missing"):
        numpy_policy(*policy_inputs[:-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {
            "env__name": "gymnax:CartPole-v1",
            "network__encoder": "tests.inference.test_export_networks:doubled",
        },
        {"env__name": "jaxrl:ProbeAgents", "network__central_value": True},
    ],
    ids=["custom encoder", "central value"],
)
def test_networks_that_are_not_built_in_are_exported(fields: dict[str, Any], tmp_path: Path) -> None:
    policy = policy_of(**fields)
    function = PolicyFunction.of(policy)
    arguments = function.example(2)
    ours = jax.device_get(jax.jit(function)(*arguments))
    for kind, runtime in (("numpy", "jax"), ("stablehlo", "jax"), ("onnx", "onnxruntime")):
        exporting.write([policy], function, tmp_path, kind)
        runner, name = exporting.read(function, tmp_path, kind)
        assert name == runtime
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), ours, runner(*arguments)
        )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"network__encoder": "tests.inference.test_export_networks:in_order"}, "the operation sort"),
        ({"network__compute_dtype": "bfloat16"}, "an array of bfloat16"),
    ],
)
def test_a_network_without_a_form_in_onnx_is_refused_with_the_reason(
    fields: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    policy = policy_of(env__name="gymnax:CartPole-v1", network__core="none", **fields)
    with pytest.raises(RunError, match=f"because of {reason}; export it with --format=stablehlo"):
        exporting.write([policy], PolicyFunction.of(policy), tmp_path, "onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_network_that_needs_its_batch_size_is_exported_for_one(tmp_path: Path) -> None:
    policy = policy_of(
        env__name="gymnax:CartPole-v1", network__encoder="tests.inference.test_export_networks:stubborn"
    )
    function = PolicyFunction.of(policy)
    for kind in ("onnx", "stablehlo"):
        description = exporting.write([policy], function, tmp_path, kind)
        assert description["batch"].startswith("1 only: ")
    assert exporting.check_export(
        function, tmp_path, description, tmp_path / "out", [policy], 5, None
    ).check.same
    assert exporting.write([policy], function, tmp_path, "stablehlo", batch=3)["batch"] == "3 only"
    assert formats.read_stablehlo(tmp_path)(*function.example(3))["value"].shape == (3,)


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture", [*(pytest.param(x, marks=pytest.mark.long) for x in ("simplified_hgt", "gat")), "gcn"]
)
def test_networks_over_graphs_take_any_batch(architecture: str, tmp_path: Path) -> None:
    policy = policy_of(
        env__name="jaxrl:Platformer(category='simple', observation=('state', 'local', 'global', 'graph'))",
        network__architecture=architecture,
        network__core="none",
    )
    function = PolicyFunction.of(policy)
    arguments = function.example(3)
    expected = jax.device_get(jax.jit(function)(*arguments))
    for kind in ("stablehlo", "onnx"):
        assert exporting.write([policy], function, tmp_path, kind)["batch"] == "any size"
        found = exporting.read(function, tmp_path, kind)[0](*arguments)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), expected, found)
