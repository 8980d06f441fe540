"""The table of docs/environments.md, "What the suites really do", asked from the suites that are installed.

A check says the text that a cell must hold, with the number that the suite itself gives.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs import suites
from jaxrl.envs.adapters.suite import suite_rules

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PAGE = Path(__file__).parents[3] / "docs/environments.md"
KEY = jax.random.PRNGKey(0)
SAME_START = "in the same step, from the initial state of this environment's first episode"
Says = Callable[[int, str], None]
LIMIT, REWARD, NEXT, OTHER = range(1, 5)


def rows() -> dict[str, list[str]]:
    section = PAGE.read_text().partition("### What the suites really do")[2].partition("\n### ")[0]
    lines = [line[1:-1].split("|") for line in section.splitlines() if line.startswith("|")][2:]
    return {cells[0].split()[0]: [cell.strip() for cell in cells] for cells in lines}


def test_every_suite_with_a_package_has_a_row() -> None:
    with_package = {suite.name for suite in suites.SUITES if suite.package}
    assert {*rows()} == with_package - {"pettingzoo"} == {*CHECKS}
    assert {len(cells) for cells in rows().values()} == {5}


@pytest.mark.parametrize("name", [*rows()])
def test_the_suite_does_what_its_row_says(name: str) -> None:
    suite = suites.suite_of(name)
    pytest.importorskip(suite.package)
    cells = rows()[name]
    if suite.version not in cells[0].split():
        pytest.skip(f"the table is of another version than {suite.version}")

    def says(column: int, text: str) -> None:
        assert text in cells[column], (
            f"the suite says {text!r}, column {column} of the table {cells[column]!r}"
        )

    with suite_rules():
        CHECKS[name](says)


def gymnax(says: Says) -> None:
    package = importlib.import_module("gymnax")
    for name in ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0"):
        says(LIMIT, f"{name} {package.make(name)[1].max_steps_in_episode}")
    for name in ("Pendulum-v1", "Breakout-MinAtar"):
        env, params = package.make(name)
        if name.endswith("MinAtar"):
            says(LIMIT, f"MinAtar {params.max_steps_in_episode:,}")
        params = params.replace(max_steps_in_episode=2)
        state = env.reset(KEY, params)[1]
        for _ in range(2):
            action = jnp.zeros_like(env.action_space(params).sample(KEY))
            _, state, _, terminated, truncated, info = env.step(KEY, state, action, params)
        assert (bool(terminated), bool(truncated)) == (False, True)
        assert "final_observation" in info
        assert state.time == 0  # of the next episode
    env, params = package.make("UmbrellaChain-bsuite")
    says(REWARD, f"{env.step(KEY, env.reset(KEY, params)[1], 0, params)[2].dtype} in UmbrellaChain-bsuite")
    # Without sticky actions: what happens does not depend on the key.
    env, params = package.make("Breakout-MinAtar")
    state = env.reset(KEY, params)[1]
    moved = [env.step_env(jax.random.fold_in(KEY, i), state, 1, params)[1].pos for i in range(100)]
    assert len({int(x) for x in moved}) == 1


def wrapped_physics(env: Any, keys: Any, limit: int) -> None:
    """Of Brax's wrappers: at the limit `done` and a truncation, and the first state again."""
    state = jax.jit(env.reset)(keys)
    first, step = np.asarray(state.obs), jax.jit(env.step)
    for t in range(1, limit + 1):
        state = step(state, jnp.full((*state.done.shape, env.action_size), 0.3))
        assert (state.done == (t == limit)).all()
        assert (state.info["truncation"] == (t == limit)).all()
        assert np.allclose(state.obs, first) == (t == limit)


def brax(says: Says) -> None:
    package = importlib.import_module("brax.envs")
    defaults = dict(zip(package.create.__code__.co_varnames[1:], package.create.__defaults__, strict=False))
    says(LIMIT, f"{defaults['episode_length']:,} by `brax.envs.create`")
    wrapped_physics(package.create("reacher", episode_length=3, backend="spring"), KEY, 3)
    says(NEXT, SAME_START)
    env = package.get_environment("reacher")
    says(OTHER, f"`backend` is `{env.backend}`")
    assert "reward_dist" in jax.eval_shape(env.reset, KEY).metrics


def craftax(says: Says) -> None:
    make = importlib.import_module("craftax.craftax_env").make_craftax_env_from_name
    for name in ("Craftax-Classic-Symbolic-v1", "Craftax-Symbolic-v1"):
        says(LIMIT, f"{name} {make(name, auto_reset=False).default_params.max_timesteps:,}")
    env = make("Craftax-Classic-Symbolic-v1", auto_reset=False)
    params = env.default_params.replace(max_timesteps=400)
    state = env.reset(KEY, params)[1]

    def step(state: Any, key: Any) -> Any:
        _, after, reward, done, _ = env.step(key, state, jax.random.randint(key, (), 0, 17), params)
        gained = after.achievements.astype(int).sum() - state.achievements.astype(int).sum()
        healed = after.player_health - state.player_health
        return after, (reward, gained, healed, done)

    found = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(KEY, 400)))(state)[1]
    reward, gained, healed, done = map(np.asarray, found)
    alive = np.cumsum(done) - done == 0
    np.testing.assert_allclose(reward[alive], gained[alive] + 0.1 * healed[alive], atol=1e-5)
    assert gained[alive].any()
    assert (healed[alive] < 0).any()
    assert done.any()
    env = make("Craftax-Classic-Symbolic-v1", auto_reset=True)
    params = env.default_params.replace(max_timesteps=1)
    _, state, _, done, _ = env.step(KEY, env.reset(KEY, params)[1], 0, params)
    assert (bool(done), int(state.timestep)) == (True, 0)


def jaxmarl(says: Says) -> None:
    package = importlib.import_module("jaxmarl")
    env = package.make("MPE_simple_spread_v3")
    state, steps, over, apart = env.reset(KEY)[1], 0, False, 0
    step = jax.jit(env.step_env)
    while not over:
        keys = jax.random.split(jax.random.fold_in(KEY, steps), len(env.agents))
        action = {agent: jax.random.randint(k, (), 0, 5) for agent, k in zip(env.agents, keys, strict=True)}
        _, state, rewards, dones, _ = step(KEY, state, action)
        collisions = [int(x) for x in np.asarray(touching(state, env.rad[: len(env.agents)]))]
        steps, over = steps + 1, bool(dones["__all__"])
        team = {
            agent: float(rewards[agent]) + 0.5 * n for agent, n in zip(env.agents, collisions, strict=True)
        }
        np.testing.assert_allclose(list(team.values()), team[env.agents[0]], rtol=1e-5)
        apart += len(set(collisions)) > 1
    assert apart, "no two agents collided"
    last = env.reset(KEY)[1].replace(step=env.max_steps)
    _, state, _, dones, _ = env.step(KEY, last, action)
    assert (bool(dones["__all__"]), int(state.step)) == (True, 0)  # of the next episode
    says(LIMIT, f"{steps} steps, `max_steps` is {env.max_steps}")
    env = package.make("overcooked")
    declared, given = env.observation_space(env.agents[0]).shape, env.reset(KEY)[0][env.agents[0]].shape
    says(OTHER, f"overcooked declares observations of {declared} and gives {given}")


def touching(state: Any, radius: Any) -> Any:
    """How many others each agent touches."""
    place = state.p_pos[: len(radius)]
    distance = jnp.linalg.norm(place[:, None] - place[None], axis=-1)
    near = (distance < radius[:, None] + radius[None]) & ~jnp.eye(len(radius), dtype=bool)
    return near.sum(axis=1)


def jumanji(says: Says) -> None:
    says(LIMIT, f"Snake-v1 {importlib.import_module('jumanji').make('Snake-v1').time_limit:,}")
    snake = importlib.import_module("jumanji.environments").Snake(time_limit=2)
    env = importlib.import_module("jumanji.wrappers").AutoResetWrapper(snake)
    state, found = env.reset(KEY)
    for _ in range(2):
        state, found = env.step(state, jnp.argmax(found.observation.action_mask))
    assert found.last()
    says(LIMIT, f"a termination, discount {float(found.discount):g}")
    assert found.observation.step_count == 0  # of the next episode


def navix(says: Says) -> None:
    package = importlib.import_module("navix")
    limit = package.make("Navix-DoorKey-8x8-v0").max_steps
    is_new = suites.suite_of("navix").version.startswith("4.")
    says(LIMIT, f"Navix-DoorKey-8x8-v0 {limit}, four times" if is_new else f"0.7.4: {limit} in every")
    assert limit == (4 * 8 * 8 if is_new else 100)
    assert envs.make("navix:Navix-DoorKey-8x8-v0").spec.max_episode_steps == limit
    env = package.make("Navix-Empty-5x5-v0", max_steps=2)
    timestep = env.step(env.step(env.reset(KEY), 0), 0)
    says(LIMIT, f"a truncation, `step_type` {int(timestep.step_type)}")
    after = env.step(timestep, 0)
    assert (int(after.t), int(after.step_type)) == (0, 0)  # the step after the end is a reset
    env = package.make("Navix-Empty-5x5-v0")
    for turns in (0, 20):
        timestep = env.reset(KEY)
        for i in range(turns):
            timestep = env.step(timestep, i % 2)
        for action in (2, 2, 1, 2, 2):
            timestep = env.step(timestep, action)
        assert timestep.is_termination()
        says(REWARD, f"{float(timestep.reward):g} at the goal, at any time")
    state = package.make("Navix-GoToDoor-5x5-v0").reset(KEY).state
    other = state.replace(mission=jax.tree.map(lambda x: x * 0 + 1, state.mission))
    for kind in ("symbolic", "symbolic_first_person", "categorical", "rgb"):
        show = getattr(package.observations, kind)
        np.testing.assert_array_equal(show(state), show(other))
    says(OTHER, "What GoToDoor, GoToObject, Fetch and PutNear ask for is in no observation")


def pgx(says: Says) -> None:
    package = importlib.import_module("pgx")
    env = package.make("tic_tac_toe")
    init, step = jax.jit(env.init), jax.jit(env.step)
    assert {int(init(jax.random.fold_in(KEY, i)).current_player) for i in range(20)} == {0, 1}
    state = step(init(KEY), 4)
    player = int(state.current_player)
    over = step(state, 4)  # a square that is taken
    assert over.terminated
    lost, won = over.rewards[player], over.rewards[1 - player]
    says(REWARD, f"{lost:g} for the player who took it and {won:g} for the other")
    np.testing.assert_array_equal(step(over, 0).observation, over.observation)
    assert not step(over, 0).rewards.any()
    says(OTHER, f"with a probability of {package.make('minatar-breakout').sticky_action_prob:g}")


def playground(says: Says) -> None:
    registry = importlib.import_module("mujoco_playground").registry
    names = registry.dm_control_suite.ALL_ENVS
    configs = [registry.get_default_config(name) for name in names]
    assert len({config.episode_length for config in configs}) == 1
    says(LIMIT, f"{configs[0].episode_length:,} in each of the {len(names)}")
    assert len({config.impl for config in configs}) == 1
    says(OTHER, f"physics is `{configs[0].impl}` by default")
    env = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    wrap = importlib.import_module("mujoco_playground").wrapper.wrap_for_brax_training
    wrapped_physics(wrap(env, episode_length=3, action_repeat=1), jax.random.split(KEY, 2), 3)
    says(NEXT, SAME_START)


def popgym_arcade(says: Says) -> None:
    env, params = importlib.import_module("popgym_arcade").make("CartPoleEasy")
    says(LIMIT, f"CartPoleEasy {env.max_steps_in_episode}")
    state = env.reset_env(KEY, params)[1]
    for step in (env.step, env.step_env):
        with pytest.raises(NotImplementedError):
            step(KEY, state, 0, params)
    env.discount = lambda state, params: 1.0
    reward = float(env.step_env(KEY, state, 0, params)[2])
    says(REWARD, f"1 / {1 / reward:.0f} a step")


def xminigrid(says: Says) -> None:
    package = importlib.import_module("xminigrid")
    for name in ("MiniGrid-DoorKey-8x8", "MiniGrid-MemoryS8"):
        says(LIMIT, f"{name} {package.make(name)[1].max_steps}")
    for name in package.registered_environments():
        if name.startswith("XLand"):
            params = package.make(name)[1]
            assert params.max_steps == 3 * params.height * params.width
            assert not params.ruleset.goal.any()  # the code of the empty goal
    env = importlib.import_module("xminigrid.envs.xland").XLandMiniGrid()
    with pytest.raises(RuntimeError, match="Unknown grid type"):
        env.reset(env.default_params(), KEY)
    env, params = package.make("MiniGrid-Empty-5x5", max_steps=1)
    after = env.step(params, env.reset(params, KEY), 1)
    assert after.last()
    says(LIMIT, f"the last step keeps discount {float(after.discount):g}")


def envpool(says: Says) -> None:
    package = importlib.import_module("envpool")
    spec = package.make_spec("Pong-v5")
    c = spec.config
    says(LIMIT, f"Pong-v5 {c.max_episode_steps:,} steps of {c.frame_skip} frames")
    assert (c.reward_clip, c.episodic_life, c.repeat_action_probability) == (False, False, 0.0)
    assert c.use_fire_reset
    says(OTHER, f"{spec.action_space.n} actions, up to {c.noop_max} no-ops and fire")
    tells = {}
    for name in ("HalfCheetah-v4", "Walker2d-v4"):
        env = package.make(name, env_type="gymnasium", num_envs=1)
        env.reset()
        obs, reward, _, _, info = env.step(np.zeros((1, 6)))
        says(OTHER, f"MuJoCo gives {obs.dtype} observations and {reward.dtype} rewards")
        tells[name] = any(key.startswith("reward_") for key in info)
    assert tells == {"HalfCheetah-v4": True, "Walker2d-v4": False}
    env = package.make("CartPole-v1", env_type="gymnasium", num_envs=1, max_episode_steps=3)
    env.reset()
    steps = [env.step(np.array([t % 2])) for t in range(4)]
    assert [bool(step[3][0]) for step in steps] == [False, False, True, False]
    says(NEXT, f"in the step after the end, whose row has `elapsed_step` {steps[3][4]['elapsed_step'][0]}")
    env = package.make("CartPole-v1", env_type="gymnasium", num_envs=1)
    env.reset()
    fall = next(t for t in itertools.count(1) if env.step(np.array([1]))[2][0])
    env = package.make("CartPole-v1", env_type="gymnasium", num_envs=1, max_episode_steps=fall)
    env.reset()
    *_, last = (env.step(np.array([1])) for _ in range(fall))
    assert (bool(last[2][0]), bool(last[3][0])) == (False, True)
    says(LIMIT, "`truncated`, also if the episode ends by itself in that step")
    env = package.make("Breakout-v5", env_type="gymnasium", num_envs=1, episodic_life=True)
    env.reset()
    ended = next(step for step in iter(lambda: env.step(np.array([0])), None) if step[2][0])
    assert ended[4]["lives"][0] == 4
    says(OTHER, f'`info["terminated"]` stays {ended[4]["terminated"][0]}')


def gymnasium(says: Says) -> None:
    package = importlib.import_module("gymnasium")
    says(LIMIT, f"CartPole-v1 {package.spec('CartPole-v1').max_episode_steps}")
    for name in ("Taxi-v3", "LunarLander-v2"):
        with pytest.raises(package.error.DeprecatedEnv):
            package.make(name)
    own = package.make_vec("CartPole-v1", num_envs=2)
    sync = package.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    assert type(own) is not type(sync)
    assert not np.allclose(own.reset(seed=0)[0], sync.reset(seed=0)[0])
    assert {env.metadata["autoreset_mode"].name for env in (own, sync)} == {"NEXT_STEP"}


CHECKS: dict[str, Callable[[Says], None]] = {
    function.__name__: function
    for function in (
        gymnax, brax, craftax, jaxmarl, jumanji, navix, pgx, playground, popgym_arcade, xminigrid, envpool,
        gymnasium,
    )
}  # fmt: skip
