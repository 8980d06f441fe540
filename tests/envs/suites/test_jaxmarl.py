"""JaxMARL: the adapter against a loop over the bare suite, which restarts by hand.

It needs its package (`pip install -e '.[jaxmarl]'`) and is skipped without it:

    python -m pytest -n 0 -m slow tests/envs/suites/test_jaxmarl.py
"""

from __future__ import annotations

import contextlib
import importlib
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.adapters.suite import suite_rules
from jaxrl.envs.agents import AgentRows
from jaxrl.envs.base import Discrete
from jaxrl.envs.checks import check_types

pytestmark = [
    pytest.mark.slow,
    # What a suite imports warns about what it imports.
    pytest.mark.filterwarnings("ignore"),
]

N = 2
RESTART = 0x52455345  # what `VectorEnv` folds into the key of a step that starts an episode


def package():
    pytest.importorskip("jaxmarl")
    with contextlib.redirect_stdout(io.StringIO()):
        return importlib.import_module("jaxmarl")


def bare(name):
    """(the suite's environment, its masks or None, steps after which it cuts off)."""
    module = package()
    if name.startswith("HeuristicEnemySMAX"):
        smax = importlib.import_module("jaxmarl.environments.smax")
        env = module.make("HeuristicEnemySMAX", scenario=smax.map_name_to_scenario("3m"))
        return env, env.get_avail_actions, None  # nobody survives for 101 steps
    if name == "hanabi":
        env = module.make(name)
        return env, env.get_legal_moves, None
    return module.make(name), None, 26


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("MPE_simple_spread_v3", 55),
        ("HeuristicEnemySMAX(scenario='3m')", 60),
        ("hanabi", 40),
    ],
)
def test_adapter_does_what_the_bare_suite_does(name, length):
    original, masks, cut_after = bare(name)
    env = envs.make(f"jaxmarl:{name}")
    assert not check_types(name, env)
    assert hash(env.spec) == hash(envs.make(env.spec.name).spec)
    agents = original.agents
    rows, count = AgentRows(env), len(agents)
    keys_B = jax.random.split(jax.random.key(1), N * count)

    def step(loop, t):
        state, obs = loop
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys_B, t)
        mask, turn = rows.action_mask(state), rows.is_turn(state)
        logits = jnp.zeros((N * count, env.spec.action_space.n))
        logits = logits if mask is None else jnp.where(mask, 0.0, -jnp.inf)
        choose = jax.vmap(lambda key, x: jax.random.categorical(jax.random.fold_in(key, 7), x))
        action = choose(keys, logits).astype(jnp.int32)
        state, found = rows.step(keys, state, action)
        record = {"seen": obs, "turn": turn, "action": action, "reward": found.reward}
        record |= {"terminated": found.terminated, "truncated": found.truncated, "final": found.final_obs}
        record |= {"team": found.team.reward, "over": found.team.done, "info": found.team.info}
        return (state, found.obs), record | ({} if mask is None else {"mask": mask})

    found = jax.tree.map(
        np.asarray, jax.jit(lambda: jax.lax.scan(step, rows.reset(keys_B), jnp.arange(length))[1])()
    )
    assert found["over"].any(axis=0).all(), "no episode ended"
    with suite_rules():
        reset, bare_step = jax.jit(original.reset), jax.jit(original.step_env)
        for n in range(N):
            key_n = keys_B[n * count]
            obs, state = reset(jax.random.key_data(key_n))
            here, time = set(agents), 0
            for t in range(length):
                of = {agent: n * count + i for i, agent in enumerate(agents)}
                row = jax.tree.map(lambda x, t=t: x[t], found)
                if masks is not None:
                    allowed = masks(state)
                    for agent in here:
                        np.testing.assert_array_equal(row["mask"][of[agent]], np.asarray(allowed[agent]) > 0)
                before = obs
                key, time = jax.random.fold_in(key_n, t), time + 1
                action = {agent: row["action"][b] for agent, b in of.items()}
                obs, state, reward, done, _ = bare_step(jax.random.key_data(key), state, action)
                over = bool(done["__all__"])
                cut = over and time == cut_after
                team = 0.0
                for agent, b in of.items():
                    assert row["turn"][b] == (agent in here)
                    if agent not in here:
                        assert row["reward"][b] == 0
                        assert not row["terminated"][b] | row["truncated"][b]
                        continue
                    np.testing.assert_allclose(row["seen"][b], before[agent], rtol=1e-5, atol=1e-6)
                    np.testing.assert_allclose(row["final"][b], obs[agent], rtol=1e-5, atol=1e-6)
                    np.testing.assert_allclose(row["reward"][b], reward[agent], rtol=1e-5, atol=1e-6)
                    assert row["truncated"][b] == cut
                    assert row["terminated"][b] == ((over or bool(done[agent])) and not cut)
                    team += float(reward[agent])
                np.testing.assert_allclose(row["team"][n * count], team, rtol=1e-4, atol=1e-5)
                assert row["over"][n * count] == over
                here = {agent for agent in here if not done[agent]}
                if over:
                    obs, state = reset(jax.random.key_data(jax.random.fold_in(key, RESTART)))
                    here, time = set(agents), 0


@pytest.mark.parametrize("name", ["MPE_simple_spread_v3", "HeuristicEnemySMAX(scenario='3m')"])
def test_the_state_of_the_whole_is_that_of_the_bare_suite(name):
    original, _, _ = bare(name)
    env = envs.make(f"jaxmarl:{name}", ("central_observation",))
    assert not check_types(name, env)
    agents, key = original.agents, jax.random.key(4)
    state, obs = env.reset(key)
    with suite_rules():
        theirs, inner = original.reset(jax.random.key_data(key))
    for t in range(4):
        together = np.concatenate([theirs[agent] for agent in agents])
        expected = theirs.get("world_state", together)
        np.testing.assert_allclose(obs["central"], np.tile(expected, (len(agents), 1)), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.ravel(obs["own"]), together, rtol=1e-5, atol=1e-6)
        key, action = jax.random.fold_in(key, t), jnp.full(len(agents), t, jnp.int32)
        state, timestep = env.step(key, state, action)
        obs = timestep.obs
        with suite_rules():
            actions = dict(zip(agents, action, strict=True))
            theirs, inner, *_ = original.step_env(jax.random.key_data(key), inner, actions)


@pytest.mark.parametrize(
    ("name", "agents", "observation", "actions", "limit", "masked"),
    [
        ("MPE_simple_spread_v3", 3, (18,), 5, 26, False),
        ("MPE_simple_speaker_listener_v4", 2, (11,), 5, 26, True),
        ("HeuristicEnemySMAX", 5, (127,), 10, 101, True),
        ("overcooked(layout='coord_ring')", 2, (5, 5, 26), 6, 400, False),
        ("hanabi", 2, (658,), 21, None, True),
    ],
)
def test_specs(name, agents, observation, actions, limit, masked):
    package()
    spec = envs.make(f"jaxmarl:{name}").spec
    assert spec.num_agents == agents
    assert spec.observation_space.shape == observation
    assert isinstance(spec.action_space, Discrete)
    assert spec.action_space.n == actions
    assert (spec.max_episode_steps, spec.has_action_mask) == (limit, masked)


def test_shorter_observations_and_fewer_actions_are_padded():
    package()
    env = envs.make("jaxmarl:MPE_simple_speaker_listener_v4")
    state, obs = env.reset(jax.random.key(0))
    speaker = env.spec.agents.index("speaker_0")
    np.testing.assert_array_equal(obs[speaker][3:], 0)
    assert env.action_mask(state).sum(axis=1)[speaker] == 3
    assert env.action_mask(state).sum(axis=1)[1 - speaker] == 5


def test_robots_have_bounds_for_each_number_and_all_their_actions():
    package()
    env = envs.make("jaxmarl:jaxnav")
    np.testing.assert_allclose(env.spec.action_space.low, [0, -np.pi / 6], rtol=1e-6)
    np.testing.assert_allclose(env.spec.action_space.high, [1, np.pi / 6], rtol=1e-6)
    # The suite says of 15 actions that the first two are allowed, with which a robot only turns.
    spec = envs.make("jaxmarl:jaxnav(act_type='Discrete')").spec
    assert (spec.action_space.n, spec.has_action_mask) == (15, False)


@pytest.mark.parametrize("action", [0, 2])  # nothing, and TELL
def test_the_last_day_ends_the_riddle(action):
    """Whether somebody speaks on it or not: the prisoners have no days after it."""
    package()
    env = envs.make("jaxmarl:switch_riddle")
    key = jax.random.key(0)
    state, step = env.reset(key)[0], jax.jit(env.step)
    assert env.spec.max_episode_steps == 6
    for day in range(1, 7):
        state, found = step(key, state, jnp.full(3, action if day == 6 else 0))
        assert found.terminated.all() == (day == 6)
        assert not found.truncated.any()
    assert (found.reward != 0).all() == bool(action)


def test_the_limit_of_brax_cuts_off_and_shows_the_last_state():
    package()
    pytest.importorskip("brax")
    env = envs.make("jaxmarl:hopper_3x1(episode_length=3, backend='spring')")
    assert env.spec.max_episode_steps == 3
    key = jax.random.key(0)
    state, first = env.reset(key)
    step, obs = jax.jit(env.step), first
    for t in range(1, 4):
        before = obs
        state, found = step(key, state, jnp.full((3, 1), 0.3))
        obs = found.obs
        assert found.truncated.all() == (t == 3)
        assert not found.terminated.any()
    assert np.abs(obs - before).max() < np.abs(obs - first).max()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MPE_simple_spred_v3", "did you mean jaxmarl:MPE_simple_spread_v3"),
        ("storm", "unknown environment 'jaxmarl:storm'"),
        ("MPE_simple_world_comm_v3", "agents that share a policy have the same actions"),
        ("HeuristicEnemySMAX(scenario='4m')", "unknown scenario of jaxmarl:HeuristicEnemySMAX '4m'"),
        ("overcooked(layout='kitchen')", "unknown layout of jaxmarl:overcooked 'kitchen'"),
        ("overcooked(size=3)", "refuses {'size': 3}"),
        ("MPE_simple_spread_v3(shaped_reward=1.0)", "has no shaped reward"),
    ],
)
def test_wrong_name(name, message):
    package()
    with pytest.raises(ValueError, match=".") as caught:
        envs.make(f"jaxmarl:{name}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_import_prints_nothing(capfd):
    package()
    assert "jaxmarl:MPE_simple_spread_v3" in envs.registry.names("jaxmarl")
    assert capfd.readouterr().out == ""


def test_films_of_particles():
    package()
    env = envs.make("jaxmarl:MPE_simple_spread_v3")
    state, _ = env.reset(jax.random.key(0))
    picture = env.render(state)
    assert picture.shape == (160, 160, 3)
    assert (picture != 255).any()
