"""Adapters of suites around small games that have the interface of the suite."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.experience.statistics import EpisodeReports


@flax.struct.dataclass
class CraftaxParams:
    max_timesteps: int = 100


@flax.struct.dataclass
class CraftaxState:
    timestep: Any
    achievements: Any


class SmallCraftax:
    """Action 1 is the first achievement, action 2 the second; action 3 is death."""

    default_params = CraftaxParams()

    def action_space(self, params):
        return SimpleNamespace(n=4)

    def reset_env(self, key, params):
        return jnp.zeros(3), CraftaxState(jnp.int32(0), jnp.zeros(3, bool))

    def is_terminal(self, state, params):
        return (state.timestep >= params.max_timesteps) | state.achievements[2]

    def step_env(self, key, state, action, params):
        achieved = state.achievements | (jnp.arange(3) == action - 1)
        state = CraftaxState(state.timestep + 1, achieved)
        done = self.is_terminal(state, params)
        percent = state.achievements * done * 100.0
        info = {"Achievements/wood": percent[0], "Achievements/stone": percent[1], "discount": 1.0 - done}
        return jnp.ones(3) * state.timestep, state, jnp.float32(1.0), done, info


@pytest.fixture
def craftax(monkeypatch):
    module = ModuleType("craftax.craftax_env")
    module.make_craftax_env_from_name = lambda name, auto_reset: SmallCraftax()
    package = ModuleType("craftax")
    package.craftax_env = module
    monkeypatch.setitem(sys.modules, "craftax", package)
    monkeypatch.setitem(sys.modules, "craftax.craftax_env", module)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrappers", "actions", "ends", "expected"),
    [
        (("time_limit(steps=3)",), (1, 0, 0), (False, True), (100, 0)),
        (("time_limit(steps=3)",), (0, 2, 3), (True, True), (0, 100)),
        ((), (1, 2, 0, 0, 0), (False, True), (100, 100)),
        (("action_repeat(times=2)", "time_limit(steps=2)"), (0, 2), (False, True), (0, 100)),
    ],
)
def test_craftax_reports_achievements_of_episodes_that_are_cut_off(
    craftax, wrappers, actions, ends, expected
):
    env = envs.make("craftax:Craftax-Symbolic-v1(max_timesteps=5)", wrappers)
    reports = EpisodeReports.of(env.spec)
    assert reports.labels == ("Achievements/stone", "Achievements/wood")
    state, tallies = env.reset(jax.random.key(0))[0], reports.begin(1)
    for t, action in enumerate(actions):
        state, step = env.step(jax.random.key(1), state, jnp.int32(action))
        told = {key: x[None] for key, x in reports.select(step.info).items()}
        tallies = reports.add(tallies, told)
        assert bool(step.done) == (t + 1 == len(actions))
    assert (bool(step.terminated), bool(step.truncated)) == ends
    wood, stone = (float(tallies[f"Achievements/{name}"].value[0]) for name in ("wood", "stone"))
    assert (wood, stone) == expected


@flax.struct.dataclass
class PgxGame:
    current_player: Any
    observation: Any
    rewards: Any
    terminated: Any
    truncated: Any
    legal_action_mask: Any
    count: Any


class SmallPgx:
    """The other moves first, `lead` times; a move of 1 wins for the player that makes it.

    Every other move of the opponent gives the agent a half.
    """

    num_players = 2

    def __init__(self, lead):
        self._lead = lead

    def init(self, key):
        no = jnp.zeros((), bool)
        player = jnp.int32(1 if self._lead else 0)
        return PgxGame(player, jnp.zeros(1), jnp.zeros(2), no, no, jnp.ones(2, bool), jnp.int32(0))

    def step(self, state, action, key):
        over = state.terminated
        wins = (action == 1) & ~over
        won = jnp.where(jnp.arange(2) == state.current_player, 1.0, -1.0)
        gift = jnp.where(state.current_player == 1, jnp.array([0.5, 0.0]), jnp.zeros(2))
        count = state.count + 1
        return state.replace(
            rewards=jnp.where(over, 0.0, jnp.where(wins, won, gift)),
            terminated=over | wins,
            count=count,
            current_player=jnp.where(count < self._lead, 1, (count - self._lead) % 2).astype(jnp.int32),
        )

    def _observe(self, state, player):
        return jnp.zeros(1)


def wins(observation, mask, key):
    return jnp.int32(1)


def waits(observation, mask, key):
    return jnp.int32(0)


@pytest.mark.parametrize(
    ("lead", "opponent", "rewards", "ended", "success"),
    [
        # Lost before the first turn: the step that follows says so.
        (1, "wins", [-1.0], True, False),
        # Two moves of the other before it, and one after it.
        (2, "waits", [1.5, 0.5, 0.5], False, False),
        (0, "waits", [0.5, 0.5], False, False),
        (0, "wins", [-1.0], True, False),
    ],
)
def test_pgx_owes_what_happened_before_the_first_turn(monkeypatch, lead, opponent, rewards, ended, success):
    module = ModuleType("pgx")
    module.make = lambda name: SmallPgx(lead)
    module.available_envs = lambda: ("small",)
    monkeypatch.setitem(sys.modules, "pgx", module)
    env = envs.make(f'pgx:small(opponent="{__name__}:{opponent}")')
    state, _ = env.reset(jax.random.key(0))
    found = []
    for _ in rewards:
        assert env.action_mask(state).all()
        state, step = env.step(jax.random.key(1), state, jnp.int32(0))
        found.append(float(step.reward))
    np.testing.assert_array_equal(found, rewards)
    assert (bool(step.terminated), bool(step.info["success"])) == (ended, success)
