"""Several episodes of one task as one: what a policy sees, where the episode ends, and what memory gains."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import algorithms, envs
from jaxrl.config import resolve
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.reports import joined_key
from jaxrl.envs.tasks import level_pool, method_of_tasks
from jaxrl.envs.vector import VectorEnv
from jaxrl.parallel.sharding import SHARDED, Topology

KEY = jax.random.key(3)
ARMS = "tests.envs.test_trials:Arms"
SOLE = "tests.envs.test_trials:Sole"


class Arms(JaxEnv):
    """A bandit with a rewarded arm, the task, which is not seen; observation (time, noise of the reset).

    The first step pulls an arm, the second does nothing. It terminates if the rewarded arm is 0, and is
    truncated if it is 1.
    """

    def __init__(self) -> None:
        self.spec = EnvSpec(
            "test:Arms",
            Box.of(0.0, 2.0, (2,)),
            Discrete(2),
            2,
            reports=(InfoMetric("success", "max"),),
            task_space=Dict((("arm", Discrete(2)),)),
        )
        self.default_task = {"arm": np.int32(0)}
        self.level_pool = {"arm": np.arange(2)}

    def draw_task(self, key):
        return {"arm": jax.random.bernoulli(key).astype(jnp.int32)}

    def reset(self, key, task):
        state = {"arm": jnp.asarray(task["arm"]), "noise": jax.random.uniform(key), "time": jnp.int32(0)}
        return state, self.show(state)

    def step(self, key, state, action):
        state = state | {"time": state["time"] + 1}
        reward = ((state["time"] == 1) & (action == state["arm"])).astype(jnp.float32)
        over, arm = state["time"] == 2, state["arm"]
        ends = (over & (arm == 0), over & (arm == 1))
        return state, TimeStep(self.show(state), reward, *ends, info={"success": reward > 0})

    def show(self, state):
        return jnp.stack([state["time"].astype(jnp.float32), state["noise"]])


class Sole(Arms):
    """The same without tasks: the arm is part of the first state."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = EnvSpec("test:Sole", Box.of(0.0, 2.0, (2,)), Discrete(2), 2)

    def reset(self, key):
        return super().reset(key, self.draw_task(key))


def play(env: JaxEnv) -> tuple[Any, Any, TimeStep]:
    """`(state, first observation, steps)` of six steps of action 0."""

    @jax.jit
    def run() -> Any:
        state, obs = env.reset(KEY)
        zeros = jnp.zeros(6, jnp.int32)
        return state, obs, jax.lax.scan(lambda state, action: env.step(KEY, state, action), state, zeros)[1]

    return jax.tree.map(np.asarray, run())


@pytest.fixture(scope="module")
def episode():
    """`(first observation, steps)` of one of three trials with fixed actions, by the arm."""
    env = envs.make(ARMS, ["trials(count=3, sample_tasks=False)", "previous_action"])
    assert env.spec.max_episode_steps == 6
    names = [report.name for report in env.spec.reports[:3]]
    assert names == ["success", "return_trial_1", "success_trial_1"]

    @jax.jit
    def run(arm):
        state, first = env.reset(KEY, {"arm": arm})
        actions = jnp.array([0, 1, 1, 0, 0, 0])
        return first, jax.lax.scan(lambda state, action: env.step(KEY, state, action), state, actions)[1]

    return lambda arm: jax.tree.map(np.asarray, run(jnp.int32(arm)))


@pytest.mark.parametrize("arm", [0, 1])
def test_the_sequence_of_an_episode_by_hand(arm, episode):
    first, steps = episode(arm)
    of = np.float32([arm == 0, 0, arm == 1, 0, arm == 0, 0])
    # Time, start of a trial, action 0, action 1, reward; the noise is left out.
    seen = np.concatenate([first[None], steps.obs])[:, [0, 2, 3, 4, 5]]
    expected = [
        [0, 1, 0, 0, 0],
        [1, 0, 1, 0, of[0]],
        [0, 1, 0, 1, 0],
        [1, 0, 0, 1, of[2]],
        [0, 1, 1, 0, 0],
        [1, 0, 1, 0, of[4]],
        [2, 0, 1, 0, 0],
    ]
    np.testing.assert_array_equal(seen, expected)
    np.testing.assert_array_equal(steps.reward, of)
    # However its trials end, by a limit too, the episode terminates with the last.
    np.testing.assert_array_equal(steps.terminated, [False] * 5 + [True])
    assert not steps.truncated.any()
    nan = np.nan
    for i, row in enumerate([[of[0], 0, *[nan] * 4], [nan, nan, of[2], 0, nan, nan], [*[nan] * 4, of[4], 0]]):
        np.testing.assert_array_equal(steps.info[f"return_trial_{i + 1}"], row)
        np.testing.assert_array_equal(steps.info[f"success_trial_{i + 1}"], row)


def test_trials_have_one_task_and_starts_of_their_own():
    env = envs.make(ARMS, ["trials(count=3)"])
    assert env.spec.task_space is None
    assert method_of_tasks(env, "draw_task") is level_pool(env) is None
    states, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, 40))
    starts, obs = jax.tree.map(np.asarray, states.starts)
    assert (starts["arm"] == starts["arm"][:, :1]).all()
    assert 0 < starts["arm"][:, 0].sum() < 40
    assert len(np.unique(obs[..., 1])) == 120
    _, first, steps = play(env)
    noise = np.concatenate([first[None], steps.obs])[:, 1]
    np.testing.assert_array_equal(noise[[0, 2, 4]], noise[[1, 3, 5]])
    assert len(set(noise[[0, 2, 4]])) == 3


@pytest.mark.slow
def test_without_tasks_all_trials_start_alike():
    for name in (ARMS, SOLE):
        jaxrl.check_env(envs.make(name, ["trials(count=3)", "previous_action"]))
    env = envs.make(SOLE, ["trials(count=3)"])
    state, first, steps = play(env)
    starts = np.concatenate([first[None], steps.obs])[[0, 2, 4]]
    np.testing.assert_array_equal(starts, first[None].repeat(3, 0))
    assert state.starts[1].shape == (1, 2)
    assert len(np.unique(steps.reward[::2])) == 1


@pytest.mark.slow
def test_batches_reset_after_the_last_trial_only():
    """With automatic resets, at once or in rounds, on one device and on two: a new task every four steps."""

    def run(keys_B, *wrappers):
        env = VectorEnv(envs.make(ARMS, ["trials(count=2)", *wrappers]))

        def step(state, t):
            keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_B, t)
            state, found = env.step(keys, state, jnp.zeros(len(keys_B), jnp.int32))
            return state, (state.env.env["arm"], found.terminated, found.obs, found.final_obs)

        rows = jax.lax.scan(step, env.reset(keys_B)[0], jnp.arange(40))[1]
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), rows)

    keys_B = jax.random.split(KEY, 4)
    arm, ends, obs, last = map(np.asarray, jax.jit(run)(keys_B))
    np.testing.assert_array_equal(ends, np.tile([False, False, False, True], (4, 10)))
    np.testing.assert_array_equal(obs[:, :3], last[:, :3])
    assert (obs[:, 3::4, 2] == 1).all()
    assert (last[:, 3::4, :1] == 2).all()
    # The arm after the step that ends an episode is the next one's.
    by_episode = np.roll(arm, 1, axis=1)[:, 4:].reshape(4, 9, 4)
    assert (by_episode == by_episode[..., :1]).all()
    assert {0, 1} == set(by_episode[0].ravel())
    rounds = jax.jit(lambda keys: run(keys, "optimistic_resets(ratio=2)"))(keys_B)
    jax.tree.map(np.testing.assert_array_equal, rounds, (arm, ends, obs, last))
    for count in range(1, 1 + min(2, jax.device_count())):
        found = Topology.of(count).shard(run, (SHARDED,), SHARDED)(keys_B)
        jax.tree.map(np.testing.assert_array_equal, found, (arm, ends, obs, last))


@pytest.mark.slow
@pytest.mark.parametrize("wrapper", ["trials(count=2)", "previous_action"])
@pytest.mark.parametrize("name", ["gymnax:Breakout-MinAtar", "jaxrl:memory/RepeatFirstEasy"])
def test_other_observations_than_vectors_become_dicts(name, wrapper):
    plain = envs.make(name)
    env = envs.make(name, [wrapper])
    jaxrl.check_env(env)
    parts = dict(env.spec.observation_space.spaces)
    assert parts.pop("observation") == plain.spec.observation_space
    added = ["trial_start"] if "trials" in wrapper else ["previous_action", "previous_reward"]
    assert sorted(parts) == added
    both = envs.make(name, ["trials(count=2)", "previous_action"])
    assert [part for part, _ in both.spec.observation_space.spaces] == [
        "observation",
        "previous_action",
        "previous_reward",
        "trial_start",
    ]
    with pytest.raises(ValueError, match="wrapper trials: the observation already has a part 'trial_start'"):
        envs.make(name, ["trials", "trials"])


@pytest.mark.slow
def test_scores_masks_and_solvers_pass_through():
    env = envs.make("jaxrl:ProbeMask", ["reward_scale(factor=-5)", "trials(count=2)"])
    state, _ = env.reset(KEY)
    plain = envs.make("jaxrl:ProbeMask")
    np.testing.assert_array_equal(env.action_mask(state), plain.action_mask(state.env))
    _, timestep = env.step(KEY, state, jnp.int32(0))
    assert timestep.info["return_trial_1"] == timestep.score
    assert timestep.score * -5 == timestep.reward
    assert joined_key("return_trial_1", "sum") not in timestep.info
    solved = envs.make("jaxrl:memory/RepeatFirstEasy", ["trials(count=2)"])
    assert solved.solve(solved.reset(KEY)[0]).shape == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("count=0", r"wrapper trials: count \(=0\)"),
        ("sample_tasks=1", r"wrapper trials: sample_tasks \(=1\) must be True or False"),
    ],
)
def test_what_is_refused_is_one_line(given, message):
    with pytest.raises(ValueError, match=message) as error:
        envs.make(ARMS, [f"trials({given})"])
    assert "\n" not in str(error.value)


def trained() -> tuple[dict[str, float], float]:
    """The reports of the last ten iterations, and the value of an episode's first observation."""
    config = jaxrl.default_config()
    config.env.update(name=ARMS, num_envs=64, stagger=False)
    # The arm cannot be read from the previous action, which memoryless policies would use as their memory.
    config.env.wrappers = ("select_observation(indices=(0,))", "trials(count=3)", "previous_reward")
    config.network.update(core="lstm", hidden_sizes=(32,), core_size=32)
    config.ppo.update(rollout_length=24, num_epochs=4, num_minibatches=4, learning_rate=5e-3)
    config.ppo.update(gamma=1.0, entropy_coef=0.003, schedule="linear")
    config.stop.steps = 120_000
    config.log.layers = False
    resolved = resolve(config, 1)
    env = envs.make(resolved.env.name, resolved.env.wrappers)
    state, metrics = jax.jit(jaxrl.make_train(resolved))(KEY)
    agent: Any = algorithms.build_agent(resolved, env.spec)
    first = jnp.float32([[0.0, 1.0, 0.0]])
    out = agent.forward(state.learner.policy, first, agent.initial_carry(1), jnp.ones(1, bool), None)
    found = {name: float(np.mean(np.asarray(x)[-10:])) for name, x in metrics.items() if "trial" in name}
    return found, float(out.value[0])


# Sequences, ends and tasks of trials are above; a core learns to remember in tests/e2e/test_probes.py.
@pytest.mark.long
def test_memory_improves_from_the_first_trial_to_the_second():
    """The best returns are 1/2, 1 and 1; so are values, summed."""
    found, value = trained()
    for metric in ("return", "success"):
        by_trial = [found[f"env/{metric}_trial_{i}"] for i in (1, 2, 3)]
        np.testing.assert_allclose(by_trial, [0.5, 1.0, 1.0], atol=0.06)
    # The value runs on across trials.
    assert value == pytest.approx(2.5, abs=0.15)
