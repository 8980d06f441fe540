"""Tasks of environments: chosen where an episode starts, kept to its end, through wrappers and batches."""

from __future__ import annotations

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import envs
from jaxrl.config import default_config, resolve
from jaxrl.envs import registry
from jaxrl.envs import wrappers as wrapper_registry
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.mixture import TaskMixture
from jaxrl.envs.spaces import bounds, sample
from jaxrl.envs.vector import VectorEnv
from jaxrl.envs.vector_mixture import vector_env

B, T = 5, 24
SPACE = Dict((("gain", Box.of(0.0, 4.0, ())), ("length", Box.of(1, 6, (), np.int32))))


class Lengths(JaxEnv):
    """Observation (length of the episode, steps so far, noise of its reset); the reward is the gain."""

    def __init__(self) -> None:
        self.spec = EnvSpec("test:Lengths", Box.of(-9, 9, (3,)), Discrete(2), 6, task_space=SPACE)
        self.default_task = {"gain": np.float32(0.1), "length": np.int32(3)}

    def reset(self, key, task):
        state = {**task, "noise": jax.random.uniform(key), "time": jnp.int32(0)}
        return state, self.show(state)

    def step(self, key, state, action):
        state = {**state, "time": state["time"] + 1}
        over, never = state["time"] >= state["length"], jnp.zeros((), bool)
        return state, TimeStep(self.show(state), state["gain"], over, never)

    def show(self, state):
        parts = (state["length"], state["time"], state["noise"])
        return jnp.stack([jnp.asarray(x, jnp.float32) for x in parts])


class DefaultLengths(Lengths):
    """The same without tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = dataclasses.replace(self.spec, task_space=None)

    def reset(self, key):
        return super().reset(key, jax.tree.map(jnp.asarray, self.default_task))


class Forgetful(jaxrl.Wrapper):
    """A user's own wrapper that knows no tasks."""

    def reset(self, key):
        return self.env.reset(key)


@jax.jit
def keys_at(t):
    return jax.vmap(lambda b: jax.random.fold_in(jax.random.fold_in(jax.random.key(1), b), t))(jnp.arange(B))


@jax.jit
def tasks_at(t):
    return jax.vmap(lambda key: sample(SPACE, jax.random.fold_in(key, 9)))(keys_at(t))


def wrapped(env, *wrappers):
    for name in wrappers:
        env = wrapper_registry.wrap(env, name)
    return VectorEnv(env)


def play(env, with_tasks=True, ahead=False):
    """(first observations [B, 3], timesteps [T, B, ...]) of random tasks, or of the default one."""

    def step(state, t):
        keys_B, task_B = keys_at(t), tasks_at(t) if with_tasks else None
        starts = env.starts(keys_B, task_B) if ahead else None
        return env.step(keys_B, state, jnp.zeros(B, jnp.int32), starts, task_B)

    def run():
        state, obs_B = env.reset(keys_at(0), tasks_at(0) if with_tasks else None)
        return obs_B, jax.lax.scan(step, state, jnp.arange(1, T + 1))[1]

    return jax.tree.map(np.asarray, jax.jit(run)())


def same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


WRAPPERS = {
    "none": (),
    "rounds": ("optimistic_resets(ratio=3)",),
    # Each that keeps a state or has a reset of its own; the first component is the length in all of them.
    "wrappers": (
        "limit_cost(index=0, bound=100.0)",
        "time_limit(steps=100)",
        "sticky_actions(probability=0.5)",
        "reward_shaping(function='tests.envs.wrapped_environments:halved')",
        "noisy_observation(hidden=1e-9)",
        "mask_observation(indices=(2,), value=1.0)",
        "previous_action(reward=False)",
        "previous_reward",
        "frame_stack(frames=2)",
        "report(key='cost', per_episode='sum')",
        "optimistic_resets(ratio=2)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("wrappers", WRAPPERS)
def test_an_episode_keeps_its_task_and_the_next_one_starts_with_another(wrappers):
    obs_B, steps = play(wrapped(Lengths(), *WRAPPERS[wrappers]))
    chosen = [jax.tree.map(np.asarray, tasks_at(t)) for t in range(T + 1)]
    for b in range(B):
        task, time = jax.tree.map(lambda x, b=b: x[b], chosen[0]), 0
        assert obs_B[b, 0] == task["length"]
        for t in range(T):
            time += 1
            assert steps.final_obs[t, b, 0] == task["length"]
            assert (steps.reward if steps.score is None else steps.score)[t, b] == task["gain"]
            assert steps.terminated[t, b] == (time == task["length"])
            if steps.terminated[t, b]:
                task, time = jax.tree.map(lambda x, b=b, t=t: x[b], chosen[t + 1]), 0
            assert steps.obs[t, b, 0] == task["length"]
    assert len(np.unique(steps.reward[steps.terminated])) > B


@pytest.mark.slow
def test_first_states_are_the_same_ahead_and_in_rounds():
    plain = play(wrapped(Lengths()))
    same(plain, play(wrapped(Lengths()), ahead=True))
    same(plain, play(wrapped(Lengths(), "optimistic_resets(ratio=3)")))


@pytest.mark.slow
def test_tasks_of_a_mixture_reset_in_rounds_or_from_states_made_ahead():
    # The form for GPUs: no condition, but where a task's resets are expensive.
    tasks = [envs.make("gymnax:CartPole-v1", wrappers) for wrappers in ((), ("optimistic_resets(ratio=2)",))]
    env = vector_env(TaskMixture("mine", tasks, ()))
    assert not env.resets_in_rounds
    keys = lambda t: jax.random.split(jax.random.key(t), B)  # noqa: E731
    starts = env.starts(keys(0))
    assert [x is None for x in starts] == [False, True]
    ahead = jax.jit(lambda k, state, action: env.step(k, state, action, env.starts(k)))
    at_once, ends = jax.jit(env.step), 0
    state, _ = other, _ = jax.jit(env.reset)(keys(0))
    for t in range(1, 40):
        action = jnp.ones(B, jnp.int32)
        (state, timestep), (other, same_step) = ahead(keys(t), state, action), at_once(keys(t), other, action)
        same(timestep, same_step)
        ends += int(timestep.done.sum())
    assert ends > B


@pytest.mark.slow
@pytest.mark.parametrize("wrappers", WRAPPERS)
def test_the_default_task_gives_the_episodes_of_an_environment_without_tasks(wrappers):
    names = WRAPPERS[wrappers]
    same(play(wrapped(Lengths(), *names), with_tasks=False), play(wrapped(DefaultLengths(), *names), False))


@pytest.mark.slow
def test_another_task_compiles_nothing():
    env = wrapped(Lengths(), "time_limit(steps=3)")
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    for t in range(3):
        state, _ = reset(keys_at(t), tasks_at(t))
        step(keys_at(t), state, jnp.zeros(B, jnp.int32), task_B=tasks_at(t))
    assert reset._cache_size() == step._cache_size() == 1


def test_an_environment_without_tasks_refuses_one():
    env = VectorEnv(envs.make("jaxrl:ProbeValue"))
    with pytest.raises(ValueError, match=r"jaxrl:ProbeValue takes no tasks: its spec has no task_space"):
        env.reset(keys_at(0), tasks_at(0))


@pytest.mark.slow
def test_a_users_environment_with_tasks_passes_the_checks_and_resolves(monkeypatch):
    jaxrl.check_env(Lengths())
    for name in ("jaxrl:Navigation(max_steps=5)", "jaxrl:Platformer(category='simple', max_steps=5)"):
        jaxrl.check_env(name)
    monkeypatch.setattr(registry, "_REGISTERED", {"mine:Lengths": Lengths})
    config = default_config()
    config.env.name = "mine:Lengths"
    config.env.wrappers = ("previous_reward",)
    assert resolve(config, 1).env.name == "mine:Lengths"
    assert envs.make("mine:Lengths", ("previous_reward",)).default_task["length"] == 3


@pytest.mark.parametrize("wrapper", ["tests.envs.test_tasks:Forgetful", "forgetful"])
def test_a_wrapper_that_knows_no_tasks_is_refused(wrapper, monkeypatch):
    monkeypatch.setitem(wrapper_registry._WRAPPERS, "forgetful", Forgetful)
    with pytest.raises(ValueError, match="its reset takes no task, but jaxrl:Navigation has tasks") as error:
        envs.make("jaxrl:Navigation", [wrapper])
    assert str(error.value).startswith(f"wrapper {wrapper}: ")
    assert "\n" not in str(error.value)
    envs.make("jaxrl:ProbeValue", [wrapper])


def with_default(**parts):
    return type("Wrong", (Lengths,), {"default_task": property(lambda self: parts, lambda self, x: None)})


class WithoutDefault(Lengths):
    def __init__(self) -> None:
        super().__init__()
        del self.default_task


class Branching(Lengths):
    def reset(self, key, task):
        return super().reset(key, {**task, "gain": jnp.float32(task["gain"] > 1 and 2)})


class Lasting(Lengths):
    """The tasks that are drawn, not the default one, last too long."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = dataclasses.replace(self.spec, max_episode_steps=3)


GAIN, LENGTH = np.float32(1), np.int32(3)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (type("A", (Lengths,), {"reset": lambda self, key: None}), "reset() takes no task, but spec.task_"),
        (WithoutDefault, "it lacks default_task"),
        (with_default(gain=GAIN), "default_task must be a dict with the keys gain, length of its space"),
        (with_default(gain=1.0, length=LENGTH), "default_task['gain'] is a float, its space has float32[]"),
        (with_default(gain=GAIN, length=np.int32([3])), "default_task['length'] is int32[1], its space has"),
        (with_default(gain=np.float32(5), length=LENGTH), "default_task['gain'] (=5.0) does not lie within"),
        (Branching, "reset() uses the value of an array in Python"),
        (Lasting, "step() let an episode go on past spec.max_episode_steps (=3)"),
    ],
)
def test_what_may_be_wrong_with_tasks_is_one_line(kind, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        jaxrl.check_env(kind())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "space",
    [
        Discrete(3),
        MultiDiscrete((2, 5)),
        Box.of(-1, 2, (), np.int32),
        Box.of(252, 255, (2,), np.uint8),
        Box.of(0, 2**32 - 1, (2,), np.uint32),
        Box.of([-1.0, 0.5], [1.0, 8.0], (2,)),
        Box.of([2.0, -np.inf], np.inf, (2,)),
        Box.of(np.finfo(np.float32).min, [np.finfo(np.float32).max, 5.0], (2,)),
    ],
)
def test_samples_lie_in_their_space(space):
    drawn = jax.vmap(lambda key: sample(space, key))(jax.random.split(jax.random.key(0), 200))
    assert drawn.shape == (200, *space.shape)
    assert drawn.dtype == space.dtype
    low, high = bounds(space)
    assert ((np.asarray(drawn) >= low) & (np.asarray(drawn) <= high)).all()
    if np.issubdtype(space.dtype, np.integer) and np.max(high - low) < 9:
        assert (np.asarray(drawn).min(axis=0) == low).all()
        assert (np.asarray(drawn).max(axis=0) == high).all()
    else:
        assert (np.asarray(drawn).std(axis=0) > 0.2).all()  # an even draw from a unit: 0.29
