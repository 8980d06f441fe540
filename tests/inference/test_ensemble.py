"""Several policies act together: means by hand, one member alone, carries, and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxrl
from jaxrl.inference.ensemble import EnsemblePolicy
from jaxrl.inference.loaded_policy import LoadedPolicy
from tests.inference.runs import observations, policy_of, save_run

CARTPOLE: dict[str, Any] = {"env__name": "gymnax:CartPole-v1"}


def test_discrete_actions_have_the_highest_mean_probability(tmp_path: Path) -> None:
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
        chances = [1 / (1 + np.exp(x[:, 0] - x[:, 1])) for x in logits]  # of the second action
        np.testing.assert_array_equal(action, (np.mean(chances, axis=0) > 0.5).astype(int))
        differ += int((action != found[0]["action"]).sum())
        # One observation is its row.
        single, _ = both.act(obs[0], None)
        assert single == both.act(obs[:1], None)[0][0]
    assert differ
    assert np.shape(single) == ()


@pytest.mark.parametrize(
    "fields",
    [
        {**CARTPOLE, "algorithm": "pqn"},
        {"env__name": "jaxrl:ProbeMask", "network__core": "none"},
        {"env__name": "jaxrl:ProbeMultiDiscrete", "network__encoder": "identity"},
        {"env__name": "gymnax:Pendulum-v1"},
    ],
)
def test_a_policy_twice_is_that_policy(fields: dict[str, Any]) -> None:
    alone = LoadedPolicy(policy_of(**fields))
    twice = EnsemblePolicy([alone, alone])
    rng, carry, carries = np.random.default_rng(1), None, None
    for _ in range(5):
        obs = observations(alone.spec.observation_space, 4, rng)
        size = alone.spec.mask_size if alone.spec.has_action_mask else 0
        mask = rng.permuted([[True] + [False] * (size - 2) + [True]] * 4, axis=1) if size else None
        action, carry = alone.act(obs, carry, action_mask=mask)
        found, carries = twice.act(obs, carries, action_mask=mask)
        assert found.dtype == action.dtype
        np.testing.assert_allclose(found, action, rtol=1e-6)


def test_what_does_not_fit_is_one_line() -> None:
    cartpole, pendulum = LoadedPolicy(policy_of(**CARTPOLE)), policy_of(env__name="gymnax:Pendulum-v1")
    with pytest.raises(jaxrl.ConfigError, match="same spaces and wrappers"):
        EnsemblePolicy([cartpole, LoadedPolicy(pendulum)])
    with pytest.raises(jaxrl.ConfigError, match="must name a run"):
        jaxrl.load([])
    mixed = EnsemblePolicy([cartpole, LoadedPolicy(policy_of(**CARTPOLE, algorithm="pqn"))])
    with pytest.raises(jaxrl.ConfigError, match="no common mean"):
        mixed.act(np.zeros(4))
    with pytest.raises(jaxrl.ConfigError, match="`carry` must be"):
        mixed.act(np.zeros(4), {"policy": 1})
