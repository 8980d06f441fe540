"""`jaxrl.load(run).act`: what the policy does, for one observation or a batch, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import envs
from jaxrl.envs.base import MultiDiscrete
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.policy_function import PolicyFunction
from jaxrl.inference.loaded_policy import LoadedPolicy
from tests.inference.runs import observations, policy_of, save_run

FIELDS: dict[str, Any] = {"env__name": "gymnax:CartPole-v1", "normalize__observations": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    save_run(folder, **FIELDS)
    return folder


@pytest.fixture(scope="module")
def loaded(run: Path) -> LoadedPolicy:
    return jaxrl.load(run)


def test_a_batch_acts_as_the_policy_does(run: Path, loaded: LoadedPolicy) -> None:
    function = PolicyFunction.of(trained_policy.load(str(run), devices=1))
    reference, rng = jax.jit(function), np.random.default_rng(0)
    _, expected, *_ = function.example(5)
    carry, actions = None, []
    for t in range(6):
        obs = observations(loaded.spec.observation_space, 5, rng)
        reset = np.arange(5) == t if t else np.ones(5, bool)
        out = reference(obs, expected, reset)
        action, carry = loaded.act(obs, carry, None if t == 0 else reset)
        expected = out["carry"]
        np.testing.assert_array_equal(action, out["action"])
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), carry, expected)
        actions.append(action)
    assert len(np.unique(actions)) == 2
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves((action, carry)))
    assert loaded.step == 7


def test_one_observation_acts_as_a_batch_of_it(loaded: LoadedPolicy) -> None:
    rng = np.random.default_rng(1)
    carry = carry_B = None
    for t in range(4):
        obs = rng.normal(size=4)  # float64, as Gymnasium's own code often makes them
        action, carry = loaded.act(obs, carry, reset=t == 2)
        action_B, carry_B = loaded.act(obs[None], carry_B, reset=[t == 2])
        assert (np.shape(action), action_B.shape) == ((), (1,))
        assert action == action_B[0]
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y[0]), carry, carry_B)
    # A reset forgets what came before.
    fresh, other = loaded.act(obs, None), loaded.act(obs, carry, reset=True)
    jax.tree.map(np.testing.assert_array_equal, fresh, other)
    zeros = loaded.act(obs, loaded.initial_carry())
    jax.tree.map(np.testing.assert_array_equal, fresh, zeros)


@pytest.mark.slow
def test_sampled_actions_follow_the_distribution_and_the_seed(run: Path) -> None:
    obs = np.full((4000, 4), 0.3, np.float32)
    function = PolicyFunction.of(trained_policy.load(str(run), devices=1))
    _, carry, reset = function.example(1)
    logits = np.asarray(jax.jit(function)(obs[:1], carry, reset)["distribution"]["logits"])[0]
    probability = np.exp(logits[1]) / np.exp(logits).sum()
    first, again = jaxrl.load(run, seed=3), jaxrl.load(run, seed=3)
    drawn, _ = first.act(obs, sample=True)
    assert abs(drawn.mean() - probability) < 4 * np.sqrt(probability * (1 - probability) / 4000)
    np.testing.assert_array_equal(drawn, again.act(obs, sample=True)[0])
    assert np.any(drawn != first.act(obs, sample=True)[0])


@pytest.mark.slow
def test_dicts_may_hold_dicts() -> None:
    name = "jaxrl:Platformer(observation='graph', category='simple')"
    loaded = LoadedPolicy(policy_of(env__name=name, network__core="none"))
    env = envs.make(name)
    _, obs = jax.jit(jax.vmap(env.start))(jnp.arange(2))
    batch = jax.tree.map(np.asarray, obs)
    actions, _ = loaded.act(batch)
    for i, action in enumerate(actions):
        single, _ = loaded.act(jax.tree.map(lambda x, i=i: x[i], batch))
        np.testing.assert_array_equal(single, action)
    with pytest.raises(jaxrl.ConfigError, match=r"`obs\['graph'\]` must be a dict of agent, level"):
        loaded.act(batch | {"graph": np.zeros(3)})
    with pytest.raises(jaxrl.ConfigError, match="one batch dimension for all keys.*'graph.agent': .2,.*"):
        loaded.act(batch | {"player": batch["player"][0]})


@pytest.mark.slow
def test_dicts_masks_and_vectors_of_actions() -> None:
    loaded = LoadedPolicy(policy_of(env__name="jaxrl:ProbeDict"))
    rng = np.random.default_rng(2)
    batch = observations(loaded.spec.observation_space, 3, rng)
    actions, _ = loaded.act(batch)
    for i, action in enumerate(actions):
        single, _ = loaded.act({key: x[i] for key, x in batch.items()})
        np.testing.assert_array_equal(single, action)
    with pytest.raises(jaxrl.ConfigError, match="`obs` must be a dict of"):
        loaded.act(np.zeros(3))
    masked = LoadedPolicy(policy_of(env__name="jaxrl:ProbeMask", network__core="none"))
    space = masked.spec.observation_space
    for allowed in range(masked.spec.mask_size):
        mask = np.arange(masked.spec.mask_size) == allowed
        action, _ = masked.act(observations(space, 1, rng)[0], action_mask=mask, sample=True)
        assert action == allowed
    with pytest.raises(jaxrl.ConfigError, match="`action_mask` is missing"):
        masked.act(observations(space, 1, rng))
    with pytest.raises(jaxrl.ConfigError, match="`action_mask` must allow an action in each row"):
        masked.act(observations(space, 1, rng)[0], action_mask=np.zeros(masked.spec.mask_size))
    integers = LoadedPolicy(policy_of(env__name="jaxrl:memory/RepeatFirst"))
    with pytest.raises(jaxrl.ConfigError, match="`obs` holds an integer that int32 does not hold"):
        integers.act(np.int64(2**40))
    with pytest.raises(jaxrl.ConfigError, match="`obs` must be from 0 to 3"):
        integers.act(np.array([0, 9]))
    components = LoadedPolicy(policy_of(env__name="jaxrl:ProbeMultiDiscrete"))
    assert isinstance(components.spec.action_space, MultiDiscrete)
    action, _ = components.act(observations(components.spec.observation_space, 1, rng)[0])
    assert action.shape == components.spec.action_space.shape


@pytest.mark.slow
def test_masks_of_components_may_be_a_list_and_allow_something_of_each() -> None:
    loaded = LoadedPolicy(policy_of(env__name="tests.e2e.environments:MaskedParts", network__core="none"))
    obs = np.zeros(2)
    for allowed in np.ndindex(3, 2):
        parts = [np.arange(n) == i for n, i in zip((3, 2), allowed, strict=True)]
        assert loaded.act(obs, action_mask=parts)[0].tolist() == list(allowed)
        batch = [np.stack([part, part]) for part in parts]
        assert loaded.act(np.stack([obs, obs]), action_mask=batch)[0].tolist() == [list(allowed)] * 2
    with pytest.raises(jaxrl.ConfigError, match="must allow an action of each component in each row"):
        loaded.act(obs, action_mask=[1, 1, 1, 0, 0])


@pytest.mark.parametrize(
    ("obs", "arguments", "said"),
    [
        (np.zeros((2, 5)), {}, r"`obs` has the shape \[2, 5\], it must be \[4\] or \[B, 4\]"),
        (np.array(["a"] * 4), {}, "`obs` is of str32, it must be of float32"),
        (np.zeros((0, 4)), {}, r"`obs` has the shape \[0, 4\], it must be"),
        ({"obs": np.zeros(4)}, {}, "`obs` is of object, it must be of float32"),
        (np.full((2, 4), np.nan), {}, "`obs` must be finite in float32"),
        (np.full(4, 1e39), {}, "`obs` must be finite in float32"),
        ((np.zeros(4), {}), {}, "`obs` must be an array, not tuple: "),
        (np.zeros((2, 4)), {"reset": True}, r"`reset` has the shape \[\], it must be \[2\]"),
        (np.zeros((2, 4)), {"reset": ["True", ""]}, r"`reset` \(=\['True', ''\]\) must be bool"),
        (np.zeros((2, 4)), {"reset": [[True], [True, False]]}, "`reset` must be an array of bool: "),
        (np.zeros(4), {"sample": "no"}, r"`sample` \(='no'\) must be true or false"),
        (np.zeros(4), {"carry": {"h": 1}}, "`carry` must be what `act` returned, or None"),
        (np.zeros(4), {"action_mask": [True, True]}, "has no masks"),
    ],
)
def test_what_does_not_fit_is_one_line(
    loaded: LoadedPolicy, obs: Any, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(jaxrl.ConfigError, match=said) as caught:
        loaded.act(obs, **arguments)
    assert "\n" not in str(caught.value)


def test_what_a_policy_lacks_and_what_is_no_run(loaded: LoadedPolicy) -> None:
    with pytest.raises(AttributeError, match=r"no `predict`: it is act\(obs, carry, reset\)"):
        loaded.predict(np.zeros(4))
    for given in ("", None, 3, []):
        with pytest.raises(jaxrl.ConfigError, match=r"`run` \(=.*\) must name a run"):
            jaxrl.load(given)
    with pytest.raises(jaxrl.ConfigError, match=r"`seed` \(=-1\) must lie between 0 and 4294967295"):
        jaxrl.load("runs/mine", seed=-1)
    with pytest.raises(jaxrl.ConfigError, match=r"`batch` \(=-1\) must be at least 1"):
        loaded.initial_carry(-1)
    assert repr(loaded).endswith(f", step 7, the latest, none was evaluated, {loaded.mode}>")


def test_a_carry_of_another_batch_or_type_is_refused(loaded: LoadedPolicy) -> None:
    _, carry = loaded.act(np.zeros((3, 4)))
    with pytest.raises(
        jaxrl.ConfigError, match=r"`carry policy\.\w` has the shape \[3, 8\], it must be \[2, 8\]"
    ):
        loaded.act(np.zeros((2, 4)), carry)
    with pytest.raises(jaxrl.ConfigError, match=r"`carry policy\.\w` is of object, it must be of float32"):
        loaded.act(np.zeros((3, 4)), jax.tree.map(lambda x: x.astype(object), carry))


def test_names_of_checkpoints(run: Path) -> None:
    assert jaxrl.load(str(run), checkpoint=7).step == 7
    with pytest.raises(jaxrl.ConfigError, match="`--checkpoint`"):
        jaxrl.load(run, checkpoint="newest")
