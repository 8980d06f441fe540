"""Wrappers of steps against the steps of the environment that they wrap, through resets."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.reports import set_entry
from jaxrl.envs.vector import VectorEnv
from jaxrl.experience.statistics import EpisodeReports

MODULE = "tests.envs.wrapped_environments"
NAME = f"{MODULE}:Counting"
HOST = "gymnasium:tests.envs.host_environments:Count"
T, B = 14, 3


def played(*wrappers: str) -> SimpleNamespace:
    """T steps of B environments, [T, B, ...] of each field; `seen` is the observation that was acted on."""
    env = VectorEnv(envs.make(NAME, wrappers))
    keys_B = jax.random.split(jax.random.key(3), B)

    def step(loop, t):
        state, obs = loop
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_B, t)
        state, timestep = env.step(keys, state, jnp.full(B, t % 3))
        return (state, timestep.obs), {"seen": obs, "score": timestep.reported_reward, **vars_of(timestep)}

    found = jax.jit(lambda: jax.lax.scan(step, env.reset(keys_B), jnp.arange(T))[1])()
    return SimpleNamespace(**jax.tree.map(np.asarray, found), spec=env.spec)


def vars_of(timestep):
    names = ("reward", "terminated", "truncated", "final_obs", "info")
    return {name: getattr(timestep, name) for name in names}


@pytest.fixture(scope="module")
def plain():
    found = played()
    ends = found.terminated | found.truncated
    assert found.terminated.any()
    assert found.truncated.any()
    assert ends.sum() > 2 * B
    return found


def same_ends(found, plain):
    np.testing.assert_array_equal(found.terminated, plain.terminated)
    np.testing.assert_array_equal(found.truncated, plain.truncated)


def in_spec(found):
    space = found.spec.observation_space
    assert found.seen.shape[2:] == found.final_obs.shape[2:] == space.shape
    assert found.seen.dtype == space.dtype
    low, high = (np.reshape(bound, space.shape) for bound in (space.low, space.high))
    assert ((found.seen >= low) & (found.seen <= high)).all()


def test_frame_stack(plain):
    found = played("frame_stack(frames=3)")
    same_ends(found, plain)
    in_spec(found)
    for b in range(B):
        frames: list[np.ndarray] = []
        for t in range(T):
            frames = [*frames, plain.seen[t, b]][-3:] if frames else [plain.seen[t, b]] * 3
            np.testing.assert_array_equal(found.seen[t, b], np.concatenate(frames))
            final = [*frames, plain.final_obs[t, b]][-3:]
            np.testing.assert_array_equal(found.final_obs[t, b], np.concatenate(final))
            if plain.terminated[t, b] or plain.truncated[t, b]:
                frames = []


@pytest.mark.parametrize(
    ("wrapper", "change"),
    [
        pytest.param("reward_scale(factor=0.5)", lambda x: x * np.float32(0.5), marks=pytest.mark.slow),
        pytest.param("reward_clip(high=3.0)", lambda x: np.clip(x, -1, 3), marks=pytest.mark.slow),
        ("reward_clip(low=2.0, high=3.0)", lambda x: np.clip(x, 2, 3)),
    ],
)
def test_rewards_are_changed_and_what_is_reported_is_not(plain, wrapper, change):
    found = played(wrapper)
    same_ends(found, plain)
    np.testing.assert_array_equal(found.reward, change(plain.reward))
    np.testing.assert_array_equal(found.score, plain.reward)
    np.testing.assert_array_equal(found.final_obs, plain.final_obs)


def test_rewards_changed_twice_in_order(plain):
    found = played("reward_scale(factor=2)", "reward_clip(high=5)", "previous_reward")
    np.testing.assert_array_equal(found.reward, np.clip(2 * plain.reward, -1, 5))
    np.testing.assert_array_equal(found.score, plain.reward)
    np.testing.assert_array_equal(found.final_obs[..., -1], found.reward)


def test_reward_shaping_sees_the_step_with_its_true_last_observation(plain):
    found = played(f"reward_shaping(function='{MODULE}:potential', scale=3.0)")
    same_ends(found, plain)
    expected = plain.reward + 3 * (plain.final_obs[..., 1] - plain.seen[..., 1])
    np.testing.assert_allclose(found.reward, expected, rtol=1e-6)
    np.testing.assert_array_equal(found.score, plain.reward)


def test_previous_reward(plain):
    found = played("previous_reward")
    same_ends(found, plain)
    in_spec(found)
    ends = plain.terminated | plain.truncated
    before = np.where(ends[:-1], 0, plain.reward[:-1])
    np.testing.assert_array_equal(found.seen[1:, :, -1], before)
    np.testing.assert_array_equal(found.seen[0, :, -1], 0)
    np.testing.assert_array_equal(found.final_obs[..., -1], plain.reward)
    np.testing.assert_array_equal(found.seen[..., :-1], plain.seen)


def test_mask_observation(plain):
    found = played("mask_observation(indices=(0,), value=-2)")
    same_ends(found, plain)
    in_spec(found)
    np.testing.assert_array_equal(found.seen[..., 0], -2)
    np.testing.assert_array_equal(found.seen[..., 1], plain.seen[..., 1])


@pytest.mark.slow
def test_noisy_observation(plain):
    found = played("noisy_observation(std=0.1)")
    same_ends(found, plain)
    in_spec(found)
    noise = found.seen - plain.seen
    assert 0.05 < noise.std() < 0.2
    assert len(np.unique(noise.round(6))) > 0.9 * noise.size
    found = played("noisy_observation(hidden=0.5)")
    in_spec(found)
    is_hidden = (found.final_obs == 0).all(axis=-1)
    assert 0.2 < is_hidden.mean() < 0.8
    np.testing.assert_array_equal(found.final_obs[~is_hidden], plain.final_obs[~is_hidden])


@pytest.mark.slow
def test_action_repeat():
    found = played("action_repeat(times=3)", "time_limit(steps=10)")
    in_spec(found)
    assert envs.make(NAME, ["action_repeat(times=3)"]).spec.max_episode_steps == 2
    number, time = found.seen[..., 0], found.seen[..., 1]
    length = 2 + number % 3
    steps = np.minimum(3, length - time)
    ends = time + steps == length
    np.testing.assert_array_equal(found.terminated, ends & (number % 2 == 0))
    np.testing.assert_array_equal(found.truncated, ends & (number % 2 == 1))
    np.testing.assert_array_equal(found.final_obs[..., 1], time + steps)
    action = (np.arange(T) % 3)[:, None]
    times = [
        [sum(t + i for i in range(1, int(n) + 1)) for t, n in zip(*x, strict=True)]
        for x in zip(time, steps, strict=True)
    ]
    np.testing.assert_allclose(found.reward, steps * (number + action) + np.array(times) / 10, rtol=1e-5)
    np.testing.assert_array_equal(found.info["one"], steps)
    np.testing.assert_array_equal(found.info["time"], time + steps)
    assert {1, 2, 3} >= set(steps.ravel().tolist()) >= {1, 3}


@pytest.mark.slow
def test_wrappers_of_noise_draw_their_own(plain):
    one = played("noisy_observation(std=0.5)").seen - plain.seen
    chain = ("noisy_observation(std=0.5)", "flatten_observation", "noisy_observation(std=0.5)")
    second = played(*chain).seen - plain.seen - one
    assert 0.3 < second.std() < 0.7
    assert abs(np.corrcoef(one.ravel(), second.ravel())[0, 1]) < 0.4
    hidden = played("noisy_observation(hidden=0.5)", "noisy_observation(hidden=0.5)")
    assert (hidden.final_obs == 0).all(axis=-1).mean() > 0.6


@pytest.mark.slow
def test_repeated_actions_lose_no_report():
    """Reports of episodes, of 4 steps as one, are those of step by step: NaN says nothing."""
    name = f"{MODULE}:Murmuring"
    how = ("last", "sum", "max", "mean")
    for wrappers, rule in [
        *[((f"report(key='{key}', per_episode='{x}')",), "") for key in ("now", "flag") for x in how],
        ((), "info.now > 2.5"),
        ((), "info.flag"),
    ]:
        found = []
        for repeat in ((), ("action_repeat(times=4)",)):
            # Declared outside of the repetition, inside, or not at all.
            for chain in ((*repeat, *wrappers), (*wrappers, *repeat)):
                env = envs.make(name, chain)
                reports, state = EpisodeReports.of(env.spec, rule), env.reset(jax.random.key(0))[0]
                tallies, over = reports.begin(1), False
                while not over:
                    state, step = env.step(jax.random.key(1), state, jnp.zeros((), jnp.int32))
                    told = {key: x[None] for key, x in reports.select(step.info).items()}
                    tallies, over = reports.add(tallies, told), bool(step.done)
                one = jnp.ones(1)
                ended = reports.final_values(tallies, one, one, one > 0)
                found.append({label: float(x.value[0]) for label, x in ended.items()})
        assert found[0]
        assert all(x == found[0] for x in found), (wrappers, rule, found)


def test_a_cost_replaces_what_repeated_steps_said_of_one():
    said = {"cost": 1.0, "cost sum": 4.0, "cost max": 2.0, "speed max": 3.0}
    assert set_entry(said, "cost", 7.0) == {"cost": 7.0, "speed max": 3.0}


def test_wrappers_of_a_users_own(plain):
    found = played(f"{MODULE}:Negative(factor=-2.0)", f"{MODULE}:Impatient")
    np.testing.assert_array_equal(found.seen[0], -2 * plain.seen[0])
    assert found.truncated.all()
    assert found.reward.dtype == np.float32
    np.testing.assert_array_equal(found.reward, 5)


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("frame_stack(frames=0)", "frames (=0) must be an integer of at least 1"),
        ("action_repeat", "needs the argument 'times'"),
        ("mask_observation(indices=(2,))", "must be integers in [0, 2)"),
        ("noisy_observation", "one of them be above 0"),
        ("noisy_observation(std=-1)", "must be at least 0"),
        ("reward_scale(factor='x')", "factor (='x') must be a finite number"),
        ("reward_clip(low=1, high=1)", "low (=1) must be below high (=1)"),
        ("reward_shaping(function='shape')", "must be of the form path.to.module:name"),
        ("reward_shaping(function='no_such:f')", "No module named 'no_such'"),
        (f"reward_shaping(function='{MODULE}:nothing')", "has no nothing"),
        (f"reward_shaping(function='{MODULE}:Counting')", "must name a function"),
        (f"reward_shaping(function='{MODULE}:potential', x=1)", "unknown argument of function"),
        (f"reward_shaping(function='{MODULE}:two_numbers')", "return one number, float32[]"),
        (f"reward_shaping(function='{MODULE}:misled', terminated=True)", "what the environment says"),
        (f"potential_shaping(function='{MODULE}:total')", "needs the argument 'gamma'"),
        (f"potential_shaping(function='{MODULE}:total', gamma=2)", "gamma (=2) must be a number from 0 to 1"),
        (f"potential_shaping(function='{MODULE}:total', gamma=0.9, by=1)", "unknown argument of function"),
        (f"potential_shaping(function='{MODULE}:Counting', gamma=0.9)", "must name a function"),
        (f"potential_shaping(function='{MODULE}:pair', gamma=0.9)", "return one number, float32[]"),
        (f"{MODULE}:Counting", "no class that inherits from jaxrl.Wrapper"),
        (f"{MODULE}:potential", "no class that inherits from jaxrl.Wrapper"),
        (f"{MODULE}:Negative(by=2)", "unknown argument"),
        (f"{MODULE}:Broken", "reset() returned an observation of float32[1], its space has float32[2]"),
        ("report(key='speed')", "step() returned no info['speed']; its info has number, one, time"),
        ("report(key='time', per_episode='first')", "must be one of last, sum, max, mean"),
    ],
)
def test_what_is_refused(wrapper, message):
    with pytest.raises(ValueError, match=".") as caught:
        envs.make(NAME, [wrapper])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_reports_can_be_added_and_changed():
    spec = envs.make(NAME, ["report(key='time', per_episode='mean')"]).spec
    assert [(report.name, report.per_episode) for report in spec.reports] == [
        ("one", "sum"),
        ("number", "last"),
        ("time", "mean"),
    ]
