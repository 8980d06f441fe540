"""Several policies act together: means by hand, one member alone, carries, exports, and what does not fit."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.commands.export import main as export
from jaxrl.inference import PolicyFunction, numpy_ensemble
from jaxrl.inference import export as exporting
from jaxrl.inference.ensemble import EnsembleFunction, EnsemblePolicy
from jaxrl.inference.loaded_policy import LoadedPolicy
from tests.envs.numbered_environments import NUMBERED, VECTORS
from tests.inference.runs import observations, policy_of, save_run

CARTPOLE: dict[str, Any] = {"env__name": "gymnax:CartPole-v1"}
# Members that differ, for each way of acting together.
MEMBERS: dict[str, list[dict[str, Any]]] = {
    "log_probabilities": [
        {**CARTPOLE, "normalize__observations": True, "network__separate_value": True},
        {**CARTPOLE, "network__core": "none", "network__activation": "relu"},
        {**CARTPOLE, "network__core": "gru", "network__core_layers": 2},
    ],
    "masked": [
        {"env__name": "jaxrl:ProbeMask", "network__core": "none"},
        {"env__name": "jaxrl:ProbeMask", "network__core": "mingru"},
    ],
    "components": [
        {"env__name": "jaxrl:ProbeMultiDiscrete", "network__encoder": "identity"},
        {"env__name": "jaxrl:ProbeMultiDiscrete", "network__core": "none"},
    ],
    "own numbers": [
        {"env__name": NUMBERED, "network__core": "none"},
        {"env__name": NUMBERED, "network__core": "gru"},
    ],
    "own numbers of components": [{"env__name": VECTORS, "network__core": "none"}],
    "q": [
        {**CARTPOLE, "algorithm": "pqn", "network__core": "none", "normalize__observations": True},
        {**CARTPOLE, "algorithm": "pqn", "pqn__dueling": True},
    ],
    "actions": [
        {"env__name": "gymnax:Pendulum-v1", "network__core": "none", "network__head": "tanh_gaussian"},
        {"env__name": "gymnax:Pendulum-v1", "network__head": "gaussian_mixture"},
    ],
}


@pytest.mark.slow
def test_discrete_actions_have_the_highest_mean_log_probability(tmp_path: Path) -> None:
    save_run(tmp_path / "lstm", **CARTPOLE)
    save_run(tmp_path / "mlp", **CARTPOLE, network__core="none", normalize__observations=True)
    both = jaxrl.load([tmp_path / "lstm", tmp_path / "mlp"])
    assert isinstance(both, EnsemblePolicy)
    lstm, mlp = both.members
    rng, carry, carry_lstm = np.random.default_rng(0), None, None
    differ = 0
    for t in range(10):
        obs = observations(both.spec.observation_space, 6, rng)
        reset = None if t == 0 else np.arange(6) == t
        action, carry = both.act(obs, carry, reset)
        found = [lstm.judge(obs, carry_lstm, reset), mlp.judge(obs, None, reset)]
        carry_lstm = found[0]["carry"]
        logits = [np.asarray(x["distribution"]["logits"], np.float64) for x in found]
        # Of two actions the difference of log-probabilities is that of logits.
        odds = [x[:, 1] - x[:, 0] for x in logits]
        np.testing.assert_array_equal(action, (np.mean(odds, axis=0) > 0).astype(int))
        differ += int((action != found[0]["action"]).sum())
        # One observation is its row.
        single, _ = both.act(obs[0], None)
        assert single == both.act(obs[:1], None)[0][0]
    assert differ
    assert np.shape(single) == ()


def test_an_unlikely_action_weighs_more_than_a_likely_one() -> None:
    """Three actions by hand: the mean of probabilities would take the first, that of their logarithms not."""
    chances = np.array([[0.90, 0.07, 0.03], [0.001, 0.40, 0.599]])
    assert chances.mean(axis=0).argmax() == 0
    alone = PolicyFunction.of(policy_of(env__name="jaxrl:ProbeMask", network__core="none"))
    together = EnsembleFunction.of([alone, alone])
    found = {
        f"member_{i}": {"distribution": {"logits": np.log(row)[None].astype(np.float32) + i}}
        for i, row in enumerate(chances)
    }
    action, distribution = numpy_ensemble.choose(found, dataclasses.asdict(together.mean), jnp)
    np.testing.assert_allclose(distribution["logits"][0], np.log(chances).mean(axis=0), rtol=1e-5)
    assert action[0] == 1  # 0.07 * 0.4 > 0.03 * 0.599 > 0.9 * 0.001


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {**CARTPOLE, "algorithm": "pqn"},
        {"env__name": "jaxrl:ProbeMask", "network__core": "none"},
        {"env__name": "jaxrl:ProbeMultiDiscrete", "network__encoder": "identity"},
        {"env__name": NUMBERED, "network__core": "none"},
        {"env__name": "gymnax:Pendulum-v1"},
    ],
)
def test_a_policy_twice_is_that_policy(fields: dict[str, Any]) -> None:
    alone = LoadedPolicy(policy_of(**fields))
    twice = EnsemblePolicy([alone, alone])
    rng, carry, carries = np.random.default_rng(1), None, None
    for _ in range(5):
        obs = observations(alone.spec.observation_space, 4, rng)
        mask = _mask(alone.spec, 4, rng)
        action, carry = alone.act(obs, carry, action_mask=mask)
        found, carries = twice.act(obs, carries, action_mask=mask)
        assert found.dtype == action.dtype
        np.testing.assert_allclose(found, action, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMBERS)
def test_every_format_acts_as_the_members_do_together(name: str, tmp_path: Path) -> None:
    policies = [policy_of(**fields) for fields in MEMBERS[name]]
    members = [LoadedPolicy(policy) for policy in policies]
    function = EnsembleFunction.of([member.function for member in members])
    runners = {}
    for kind in ("numpy", "safetensors", "onnx", "stablehlo"):
        (tmp_path / kind).mkdir()
        said = exporting.write(policies, function, tmp_path / kind, kind)
        assert said["batch"] == "any size"
        runners[kind], runtime = exporting.read(function, tmp_path / kind, kind)
        assert runtime == {"onnx": "onnxruntime", "stablehlo": "jax"}.get(kind, "numpy")
    rng, batch = np.random.default_rng(2), 5
    carries = dict.fromkeys(runners, jax.device_get(function.example(batch)[1]))
    own: list[Any] = [None] * len(members)
    for t in range(6):
        obs, reset = observations(function.spec.observation_space, batch, rng), rng.random(batch) < 0.3
        reset |= t == 0
        mask = _mask(function.spec, batch, rng)
        judged = [m.judge(obs, c, reset, action_mask=mask) for m, c in zip(members, own, strict=True)]
        own = [x["carry"] for x in judged]
        expected = _together(judged, function)
        for kind, run in runners.items():
            found = run(obs, carries[kind], reset, *([] if mask is None else [mask]))
            carries[kind] = found["carry"]
            if np.issubdtype(expected.dtype, np.integer):
                np.testing.assert_array_equal(found["action"], expected, err_msg=kind)
            np.testing.assert_allclose(found["action"], expected, rtol=1e-4, atol=1e-4, err_msg=kind)
            assert found["action"].dtype == judged[0]["action"].dtype
            value = np.mean([x["value"] for x in judged], axis=0)
            np.testing.assert_allclose(found["value"], value, rtol=1e-3, atol=1e-4)
            for i, one in enumerate(own):
                close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)  # noqa: E731
                jax.tree.map(close, found["carry"][f"member_{i}"], one)


def _together(judged: list[dict[str, Any]], function: EnsembleFunction) -> np.ndarray:
    """The action of the members' means, in float64."""
    if function.mean.of == "actions":
        return np.mean([np.asarray(x["action"], np.float64) for x in judged], axis=0)
    parts = []
    for i, size in enumerate(function.mean.sizes):
        start = sum(function.mean.sizes[:i])
        each = [next(iter(x["distribution"].values()))[:, start : start + size] for x in judged]
        each = [np.asarray(x, np.float64) for x in each]
        if function.mean.of != "q":
            each = [x - np.logaddexp.reduce(x, axis=-1, keepdims=True) for x in each]
        parts.append(np.mean(each, axis=0).argmax(axis=-1))
    action = np.stack(parts, axis=-1) if function.mean.is_vector else parts[0]
    space: Any = function.spec.action_space
    return action + np.array(space.start or 0)


def _mask(spec: Any, batch: int, rng: np.random.Generator) -> np.ndarray | None:
    if not spec.has_action_mask:
        return None
    allowed = [True] + [False] * (spec.mask_size - 2) + [True]
    return rng.permuted([allowed] * batch, axis=1)


@pytest.mark.slow
def test_the_command_exports_several_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runs = [str(tmp_path / "lstm"), str(tmp_path / "mlp")]
    save_run(tmp_path / "lstm", **CARTPOLE)
    save_run(tmp_path / "mlp", **CARTPOLE, network__core="none")
    out = tmp_path / "out"
    assert export(["jaxrl export", *runs, "--format=numpy", f"--output={out}", "--steps=40"]) == 0
    said = capfd.readouterr().out
    assert said.count("checkpoint  step 7, the latest, none was evaluated") == 2
    assert "the same in all 320 rows" in said
    description = json.loads((out / "policy.json").read_text())
    assert {*description["files"], "policy.json"} == {p.name for p in out.iterdir()}
    assert list(description["members"]) == ["member_0", "member_1"]
    assert description["inputs"]["carry.member_0.policy.h"]["dtype"] == "float32"
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "import numpy as np; from numpy_ensemble import NumpyEnsemble\n"
        "policy = NumpyEnsemble('.')\n"
        "out = policy(np.ones((3, 4), np.float32), policy.initial_carry(3), np.ones(3, bool))\n"
        "assert not {'jax', 'jaxrl', 'flax'} & set(sys.modules)\n"
        "print(out['action'].tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], cwd=out, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == jaxrl.load(runs).act(np.ones((3, 4)))[0].tolist()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a", "b", "--format=numpy"], "`--output` is missing"),
        (["a", "b", "--format=stablehlo", "--output=x", "--sample"], "take the best action by their mean"),
        (["a", "b", "--format=tflite", "--output=x"], "must be one of stablehlo"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert export(["jaxrl export", *arguments]) == 2
    stderr = capfd.readouterr().err
    assert said in stderr
    assert len(stderr.splitlines()) == 1


def test_what_does_not_fit_is_one_line() -> None:
    cartpole, pendulum = LoadedPolicy(policy_of(**CARTPOLE)), policy_of(env__name="gymnax:Pendulum-v1")
    with pytest.raises(jaxrl.ConfigError, match="same spaces and wrappers"):
        EnsemblePolicy([cartpole, LoadedPolicy(pendulum)])
    with pytest.raises(jaxrl.ConfigError, match="must name a run"):
        jaxrl.load([])
    with pytest.raises(jaxrl.ConfigError, match="no common mean"):
        EnsemblePolicy([cartpole, LoadedPolicy(policy_of(**CARTPOLE, algorithm="pqn"))])
    recurrent = LoadedPolicy(policy_of(**CARTPOLE, algorithm="r2d2"))
    with pytest.raises(jaxrl.ConfigError, match="value_rescaling.*no common mean"):
        EnsemblePolicy([recurrent, LoadedPolicy(policy_of(**CARTPOLE, algorithm="pqn"))])
    with pytest.raises(jaxrl.ConfigError, match="`carry` must be"):
        EnsemblePolicy([cartpole, cartpole]).act(np.zeros(4), {"policy": 1})
