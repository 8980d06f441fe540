"""Observations, actions and messages of every kind of space, on their way into a policy and out of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl.inference.loaded_policy import LoadedPolicy
from jaxrl.inference.serving import Refusal, messages
from jaxrl.inference.serving.arrays_of_spaces import ObservationReader, action_writer
from tests.envs.numbered_environments import VECTORS
from tests.inference.runs import observations as drawn
from tests.inference.runs import policy_of
from tests.inference.serving.models import write_model
from tests.inference.serving.test_service import served, service_of

# Each with one runtime: that all compute the same is in tests/inference/test_export.py.
SPACES = [
    ("numpy", {"env__name": "jaxrl:ProbeDict", "network__core": "gru", "normalize__observations": True}),
    ("onnx", {"env__name": "jaxrl:ProbeMask"}),
    (
        "stablehlo",
        {
            "env__name": "jaxrl:ProbeMask",
            "algorithm": "pqn",
            "network__core": "none",
            "network__layer_norm": True,
        },
    ),
    ("onnx", {"env__name": VECTORS, "network__core": "none"}),
    pytest.param(
        "numpy",
        {"env__name": "jaxrl:ProbeMultiDiscrete", "network__encoder": "identity"},
        marks=pytest.mark.long,
    ),
    pytest.param(
        "onnx",
        {"env__name": "gymnax:Breakout-MinAtar", "network__encoder": "minatar", "network__core": "none"},
        marks=pytest.mark.long,
    ),
    ("stablehlo", {"env__name": "gymnax:Pendulum-v1", "network__core": "lru"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "fields"), SPACES)
def test_every_kind_of_space_is_served(runtime: str, fields: dict[str, Any], tmp_path: Path) -> None:
    """Episodes of a batch, with masks, dicts and several components, as `jaxrl.load` plays them."""
    policy = policy_of(**fields)
    write_model(tmp_path / "model", **fields)
    loaded, found = LoadedPolicy(policy), served(tmp_path / "model", runtime)
    rng = np.random.default_rng(3)

    async def run() -> None:
        service = service_of(found)
        names = ["a", "b", "c"]
        for session in names:
            await service.reset({"session": session})
        carry = None
        for _ in range(8):
            obs = drawn(policy.spec.observation_space, 3, rng)
            mask = rng.permuted([[True, False, True]] * 3, axis=1) if policy.spec.has_action_mask else None
            action, carry = loaded.act(obs, carry, action_mask=mask)
            content: dict[str, Any] = {"session": names, "obs": obs}
            content |= {} if mask is None else {"action_mask": mask.tolist()}
            answer = await service.act(json.loads(messages.encode(messages.JSON, content)))
            np.testing.assert_allclose(answer["action"], action, rtol=1e-4, atol=1e-5)

    asyncio.run(run())


@pytest.mark.slow
def test_masks_allow_something_of_each_component(tmp_path: Path) -> None:
    write_model(tmp_path / "m", env__name="tests.e2e.environments:MaskedParts", network__core="none")
    service = service_of(served(tmp_path / "m", "numpy"))
    given = {"obs": [0.0, 0.0], "action_mask": [False, False, True, True, False]}
    assert asyncio.run(service.act(given))["action"].tolist() == [2, 0]
    with pytest.raises(Refusal, match="must allow an action of each component in each row"):
        asyncio.run(service.act(given | {"action_mask": [False, False, True, False, False]}))


def box(shape: list[int], dtype: str = "float32") -> dict[str, Any]:
    return {"type": "box", "shape": shape, "dtype": dtype, "low": None, "high": None}


def test_observations_of_dicts_and_integers() -> None:
    discrete = {"type": "discrete", "shape": [], "dtype": "int32", "n": 3}
    inner = {"type": "dict", "spaces": {"b": discrete, "a": box([2], "uint8")}}
    reader = ObservationReader({"type": "dict", "spaces": {"z": box([2, 2]), "in": inner}})
    given = {"z": [[1, 2], [3, 4.5]], "in": {"a": [0, 255], "b": 2}}
    single, found = reader.read(given)
    assert single
    assert {k: (x.shape, str(x.dtype)) for k, x in found.items()} == {
        "obs.in.a": ((1, 2), "uint8"),
        "obs.in.b": ((1,), "int32"),
        "obs.z": ((1, 2, 2), "float32"),
    }
    for change, said in (
        ({"z": [[1, 2]]}, r"`obs\['z'\]` has the shape \[1, 2\]"),
        ({"z": [[1, 2], [3, 1e39]]}, "must be finite"),
        ({"z": [["1", "2"], ["3", "4"]]}, "is of str"),
        ({"in": {"a": [0, 256], "b": 2}}, "does not hold"),
        ({"in": {"a": [0, -1], "b": 2}}, "does not hold"),
        ({"in": {"a": [0, 1.5], "b": 2}}, "is of float64, it must be of uint8"),
        ({"in": {"a": [0, 1], "b": 3}}, "must be from 0 to 2"),
        ({"in": {"a": [0, 1], "b": 10**30}}, "is of object|must be an array"),
        ({"in": {"a": [0, 1]}}, "must have the keys a, b"),
        ({"in": {"a": [[0, 1]], "b": [2]}}, "one batch dimension"),
    ):
        with pytest.raises(Refusal, match=said) as caught:
            reader.read(given | change)
        assert (caught.value.status, "\n" in str(caught.value)) == (400, False)


def test_actions_of_several_parts_have_names() -> None:
    parts = {"turn": box([2]), "gear": {"type": "discrete", "shape": [], "dtype": "int32", "n": 4}}
    write = action_writer({"type": "mixed", "shape": [3], "dtype": "float32", "parts": parts})
    found = write(np.array([[0.5, -1.0, 3.0]], np.float32))
    np.testing.assert_array_equal(found["turn"], [[0.5, -1.0]])
    assert (found["gear"].tolist(), found["gear"].dtype) == ([3], np.int32)
    assert (
        messages.encode(messages.JSON, {"action": found})
        == b'{"action": {"turn": [[0.5, -1.0]], "gear": [3]}}'
    )
    with pytest.raises(Refusal, match="several parts"):
        messages.encode(messages.NPY, {"action": found})


@pytest.mark.parametrize("kind", [messages.JSON, messages.MSGPACK])
def test_messages_are_read_as_they_were_written(kind: str) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3) / 7
    found = messages.decode(kind, messages.encode(kind, {"session": "a", "obs": {"x": array}, "reset": True}))
    assert (found["session"], found["reset"]) == ("a", True)
    np.testing.assert_array_equal(np.float32(found["obs"]["x"]), array)
