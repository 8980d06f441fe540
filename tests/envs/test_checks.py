"""Mistakes of a user's own environment, and the one line that names each."""

from __future__ import annotations

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import jaxrl
from jaxrl import envs
from jaxrl.config import ConfigError, default_config, resolve
from jaxrl.envs import registry
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.checks import check_types
from jaxrl.envs.conversion import Converted
from jaxrl.envs.games.game_env import GameEnv
from jaxrl.envs.native.games.tic_tac_toe import TicTacToe

FALSE = np.array(False)
RNG = np.random.default_rng(0)


class Sound(JaxEnv):
    """Counts to 5."""

    spec = EnvSpec("Sound", Box.of(0, 5, (2,)), Discrete(3), max_episode_steps=5)

    def reset(self, key):
        return {"time": jnp.int32(0)}, jnp.zeros(2)

    def step(self, key, state, action):
        time = state["time"] + 1
        return {"time": time}, TimeStep(self.show(time, key), jnp.float32(action), time == 5, FALSE)

    def show(self, time, key):
        return jnp.full(2, time, jnp.float32)


def with_spec(**fields):
    return type("Sound", (Sound,), {"spec": dataclasses.replace(Sound.spec, **fields)})


def with_step(change):
    """`change(state, timestep)` is what `step` returns."""
    return type("Sound", (Sound,), {"step": lambda self, *args: change(*Sound.step(self, *args))})


def with_field(**fields):
    return with_step(lambda state, timestep: (state, dataclasses.replace(timestep, **fields)))


class Counting(Sound):
    """Counts its calls in Python."""

    def __init__(self):
        self.calls = 0

    def show(self, time, key):
        self.calls += 1
        return jnp.full(2, self.calls, jnp.float32)


class Drawing(Sound):
    """Draws with numpy, once per compilation."""

    def show(self, time, key):
        return jnp.asarray(RNG.normal(size=2), jnp.float32)


class Keeping(Sound):
    """Keeps the last observation, as arrays of a trace that is over."""

    last = jnp.zeros(2)

    def show(self, time, key):
        self.last = self.last + time
        return self.last


class Branching(Sound):
    def show(self, time, key):
        return jnp.zeros(2) if time > 3 else jnp.ones(2)


class Raising(Sound):
    def show(self, time, key):
        raise KeyError("no such\nmotor")


class Swapped(Sound):
    def reset(self, key):
        return tuple(reversed(super().reset(key)))


class Masked(Sound):
    spec = dataclasses.replace(Sound.spec, has_action_mask=True)

    def action_mask(self, state):
        return jnp.ones(2)


class Stuck(Masked):
    """Its mask allows nothing once two steps are made, before the episode ends."""

    def action_mask(self, state):
        return jnp.full(3, (state["time"] != 2) & (state["time"] < 5))


class StuckInAPart(Sound):
    spec = dataclasses.replace(Sound.spec, action_space=MultiDiscrete((2, 3)), has_action_mask=True)

    def step(self, key, state, action):
        return super().step(key, state, action.sum())

    def action_mask(self, state):
        return jnp.array([False, False, True, True, True])


class TooManyCells(Sound):
    """In cell 5 of 5, counted from 0."""

    spec = dataclasses.replace(Sound.spec, observation_space=Dict((("cell", Discrete(5)),)))

    def reset(self, key):
        return {"time": jnp.int32(0)}, self.show(jnp.int32(0), key)

    def show(self, time, key):
        return {"cell": time}


PARTS = Dict((("a", Box.of(0, 5, (2,))), ("b", Discrete(2))))
WRONG = [
    # spec
    (with_spec(observation_space=spaces.Box(0, 5, (2,))), "spec.observation_space is a gymnasium.spaces.box"),
    (with_spec(action_space=spaces.Discrete(3)), "spec.action_space is a gymnasium.spaces.discrete.Discrete"),
    (with_spec(observation_space=Dict((("a", 3),))), "spec.observation_space['a'] is a int; use those of"),
    (with_spec(observation_space=Box.of(0, 1, (2,), np.float64)), "float64; arrays of JAX have 32 bits"),
    (with_spec(action_space=Dict((("a", PARTS),))), "the action part 'a' is Dict("),
    (type("Sound", (Sound,), {"spec": (2, 3)}), "spec is a 2 values; make it a jaxrl.EnvSpec"),
    # reset
    (with_spec(observation_space=Box.of(0, 5, (3,))), "of float32[2], its space has float32[3]"),
    (with_spec(observation_space=Box.of(0, 5, (2,), np.uint8)), "uint8[2]; convert it by .astype(jnp.uint8)"),
    (with_spec(observation_space=PARTS), "an observation of float32[2]; its space has the keys a, b"),
    (Swapped, "reset() returned an observation of"),
    (type("Sound", (Sound,), {"reset": lambda self, key: jnp.zeros(2)}), "reset() returned"),
    # step
    (with_step(lambda s, t: (t.obs, 1.0, False, False, {})), "step() returned 5 values; return (state, jax"),
    (with_step(lambda s, t: (t.obs, s, 1.0, False, {})), "step() returned 5 values"),
    (with_step(lambda s, t: (s, t.obs)), "step() returned a state and"),
    (with_step(lambda s, t: ({"time": 0.5}, t)), "returned state['time'] as float32[], reset() as int32[]"),
    (with_step(lambda s, t: ({**s, "more": 1}, t)), "step() returned a state of another structure"),
    (with_field(obs=np.zeros(3, np.float32)), "step() returned an observation of float32[3], its space has"),
    (with_field(reward=np.zeros(1, np.float32)), "step() returned the reward float32[1]; return one number"),
    (with_field(reward=np.complex64(1)), "step() returned the reward complex64[]"),
    (with_field(reward=None), "step() returned the reward a NoneType; return one number"),
    (with_field(truncated=None), "step() returned truncated as a NoneType; return one bool[]"),
    (with_field(terminated=np.int32(0)), "step() returned terminated as int32[]; return one bool[]"),
    (with_field(truncated=np.zeros(2, bool)), "step() returned truncated as bool[2]"),
    (with_field(info={"note": "far"}), "step() returned info['note'] as a str; keep arrays and numbers, and"),
    (with_step(lambda s, t: ({**s, "name": "far"}, t)), "step() returned state['name'] as a str; keep"),
    (Branching, "step() uses the value of an array in Python (if, while, int, numpy): use jnp.where"),
    (Raising, "step() raised KeyError: 'no such\\nmotor' (test_checks.py, line"),
    # action_mask
    (Masked, "action_mask() returned float32[2]; return bool[3]"),
    (Stuck, "action_mask() allowed no action in the middle of an episode; let at least one be True"),
    (StuckInAPart, "action_mask() allowed no action in the middle of an episode"),
    # behaviour
    (Counting, "step() does something else at its second call; it must depend on its arguments alone"),
    (Drawing, "step() does something else at its second call"),
    (Keeping, "step() keeps arrays from one call to the next; it must depend on its arguments alone"),
    (with_spec(max_episode_steps=4), "step() let an episode go on past spec.max_episode_steps (=4)"),
    (TooManyCells, "returned an integer outside of spec.observation_space"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "message"), WRONG)
def test_every_problem_is_one_line_that_names_environment_and_method(kind, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        jaxrl.check_env(kind())
    text = str(caught.value)
    assert text.startswith(f"{kind.__name__}: ")
    assert "\n" not in text
    assert len(text) < 400


@pytest.mark.parametrize(("kind", "message"), WRONG[::6])
def test_a_run_refuses_them_before_anything_is_compiled(kind, message, monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {"mine:Env": kind})
    config = default_config()
    config.env.name = "mine:Env"
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        resolve(config, 1)
    assert str(caught.value).startswith("`env.name` (='mine:Env'): mine:Env: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "Dict must have parts"),
        ((("a", Discrete(2)), ("a", Discrete(3))), "two parts called 'a'; rename"),
    ],
)
def test_parts_have_names_of_their_own(parts, message):
    with pytest.raises(ValueError, match=message):
        Dict(parts)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (with_field(reward=np.float32(np.nan)), "a reward with NaN or infinity in it"),
        pytest.param(
            with_field(obs=np.full(2, np.inf, np.float32)),
            "an observation with NaN or infinity in it",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_numbers_are_finite(kind, message):
    """A run answers others as `nonfinite` says."""
    with pytest.raises(ValueError, match=message):
        jaxrl.check_env(kind())
    unlimited = type("Sound", (kind,), {"spec": dataclasses.replace(Sound.spec, max_episode_steps=None)})
    with pytest.raises(ValueError, match=message):
        jaxrl.check_env(unlimited())


class Unmade(Sound):
    def __init__(self):
        raise KeyError("no map")


def test_an_environment_that_cannot_be_made_is_one_line():
    with pytest.raises(ValueError, match=r"Unmade: making it raised KeyError: .no map. \(test_checks.py"):
        jaxrl.check_env("tests.envs.test_checks:Unmade")


class EndsBadly(Sound):
    """What comes after the end of an episode is not looked at, since it is reset there."""

    def show(self, time, key):
        return jnp.full(2, jnp.where(time > 5, jnp.nan, time))


def test_sound_environments_pass():
    jaxrl.check_env(EndsBadly())
    jaxrl.check_env(Sound())
    # An ended episode needs no mask.
    jaxrl.check_env(type("Free", (Masked,), {"action_mask": lambda self, s: jnp.full(3, s["time"] < 5)})())
    assert check_types("Sound", Sound()) is False


@pytest.mark.slow
@pytest.mark.parametrize("probe", ["Mask", "Dict", "MultiDiscrete", "Continuous"])
def test_probes_pass(probe):
    jaxrl.check_env(f"jaxrl:Probe{probe}")


class Again(TicTacToe):
    """Who takes the middle has another turn."""

    def seat(self, state):
        taken = state.board[4] > 0
        return (super().seat(state) + taken) % 2


@pytest.mark.slow
def test_a_game_says_if_a_player_may_move_twice_in_a_row():
    jaxrl.check_env("jaxrl:TicTacToe")
    with pytest.raises(ValueError, match="moved twice in a row, and `alternates` is True"):
        jaxrl.check_env(GameEnv(Again()))
    jaxrl.check_env(GameEnv(type("Again", (Again,), {"alternates": False})()))


class Plain(JaxEnv):
    """Python numbers, and an integer as reward."""

    spec = EnvSpec("Plain", Dict((("n", Discrete(7)), ("x", Box.of(0, 9, ())))), MultiDiscrete((2, 2)), 3)

    def reset(self, key):
        return 0, {"n": 0, "x": 0.0}

    def step(self, key, state, action):
        time = state + 1
        return time, TimeStep({"n": time, "x": 1.5}, action[0], time == 3, False)


def test_python_numbers_and_integer_rewards_are_converted(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {"mine:Plain": Plain})
    env = envs.make("mine:Plain")
    assert isinstance(env, Converted)
    jaxrl.check_env(env)
    state, obs = env.reset(jax.random.key(0))
    assert {key: (x.dtype, x.weak_type) for key, x in obs.items()} == {
        "n": (jnp.int32, False),
        "x": (jnp.float32, False),
    }
    _, timestep = env.step(jax.random.key(0), state, jnp.array([1, 0], jnp.int32))
    assert (timestep.reward, timestep.reward.dtype) == (1, jnp.float32)
    assert timestep.truncated.dtype == bool
    assert timestep.obs["x"] == 1.5


def test_what_needs_no_conversion_is_left_alone(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {"mine:Sound": Sound})
    assert type(envs.make("mine:Sound")) is Sound


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Discrete(0), "Discrete.n (=0) must be an integer in [1, 2147483647]"),
        (lambda: Discrete(2**40), "Discrete.n (=1099511627776)"),
        (lambda: Discrete(2.0), "Discrete.n (=2.0)"),
        (lambda: MultiDiscrete(()), "MultiDiscrete.nvec (=()) must be a tuple of at least one"),
        (lambda: MultiDiscrete((3, 2**31)), "MultiDiscrete.nvec (=2147483648)"),
        (lambda: MultiDiscrete((2**30,) * 3), "the sum of MultiDiscrete.nvec"),
        (lambda: Box.of(0, 1, (0,)), "Box.shape (=(0,)) must have positive sizes"),
        (lambda: Box.of(0, 1, (10**6, 10**6)), "must have at most 8388608 elements, not 1000000000000"),
        (lambda: Box.of(1, -1, (2,)), "Box.low (=1.0) must be at most Box.high (=-1.0)"),
        (lambda: Box.of(np.nan, 1, (2,)), "Box.low (=nan) must be at most"),
        (
            lambda: Box.of((0, 0, 0), 1, (2,)),
            "Box.low of shape (3,) must be one number, or one for each element",
        ),
        (lambda: Box.of(0, 1, 2), "Box.shape (=2) must be a tuple of sizes, such as (2,)"),
        (
            lambda: Dict({"a": Discrete(2)}),
            "Dict must have its parts as pairs: tuple({'name'",
        ),
        (lambda: Box((0.0,), (1.0,), (2,)), "must have one entry for each of the 2 elements"),
        (lambda: EnvSpec("x", Discrete(2), Discrete(2), 0), "EnvSpec.max_episode_steps (=0)"),
    ],
)
def test_spaces_that_no_array_holds_are_refused(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
