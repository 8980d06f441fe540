"""What a value learner meets at the end of an episode: the masks of its last state, and its own task."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import algorithms
from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.games import Game
from jaxrl.envs.games.game_env import GameEnv
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Array, Axis, PyTree, Trajectory
from tests.algorithms.tiny import first_state, tiny_config
from tests.experience.task_environments import LEVELS, Alternating, Corridor

ROLLOUTS = 3
ACTIONS, LIMIT = 3, 5
AXES = {"cpu": Axis(), "few_kernels": Axis(platform="gpu")}


@flax.struct.dataclass
class Turn:
    """int32[]: steps so far, and the only action that is allowed now."""

    time: jax.Array
    allowed: jax.Array


class OneAllowed(JaxEnv):
    """One action is allowed in a state, and seen in the observation; each step rewards with 1.

    Episodes begin with any action, each next state allows the next one, and they are cut off after `LIMIT`.
    """

    spec = EnvSpec(
        "test:OneAllowed", Box.of(0.0, 1.0, (ACTIONS,)), Discrete(ACTIONS), LIMIT, has_action_mask=True
    )

    def reset(self, key: jax.Array) -> tuple[Turn, jax.Array]:
        state = Turn(jnp.int32(0), jax.random.randint(key, (), 0, ACTIONS))
        return state, self.action_mask(state).astype(jnp.float32)

    def step(self, key: jax.Array, state: Turn, action: jax.Array) -> tuple[Turn, TimeStep]:
        state = Turn(state.time + 1, (state.allowed + 1) % ACTIONS)
        obs = self.action_mask(state).astype(jnp.float32)
        return state, TimeStep(obs, jnp.float32(1), jnp.bool(False), state.time >= LIMIT)

    def action_mask(self, state: Turn) -> jax.Array:
        return jnp.arange(ACTIONS) == state.allowed


class OneAllowedGame(Game):
    """`OneAllowed` of two: both seats see the move that is allowed, and nobody wins or loses."""

    spec = EnvSpec("test:OneAllowedGame", OneAllowed.spec.observation_space, Discrete(ACTIONS), LIMIT)

    def start(self, key: jax.Array) -> Turn:
        return Turn(jnp.int32(0), jax.random.randint(key, (), 0, ACTIONS))

    def play(self, key: jax.Array, state: Turn, action: jax.Array) -> Turn:
        return Turn(state.time + 1, (state.allowed + 1) % ACTIONS)

    def seat(self, state: Turn) -> jax.Array:
        return state.time % 2

    def observe(self, state: Turn, seat: jax.Array) -> jax.Array:
        return self.action_mask(state).astype(jnp.float32)

    def action_mask(self, state: Turn) -> jax.Array:
        return jnp.arange(ACTIONS) == state.allowed

    def rewards(self, state: Turn) -> jax.Array:
        return jnp.zeros(2, jnp.float32)

    def ends(self, state: Turn) -> tuple[jax.Array, jax.Array]:
        return jnp.bool(False), state.time >= LIMIT


class Drawn(Alternating):
    """Any level, drawn for each episode."""

    def choose(self, state: Array, keys_B: Array) -> PyTree:
        return {"level": jax.vmap(lambda key: jax.random.randint(key, (), 0, LEVELS))(keys_B)}


def rollouts(
    algorithm: str, env: JaxEnv, axis: Axis, tasks: Any = None, **fields: Any
) -> list[tuple[Any, Trajectory]]:
    """(state before, rollout) with a learner that does not learn."""
    config = tiny_config(algorithm, **fields)
    agent = algorithms.build_agent(config, env.spec)
    iteration = Iteration.build(config, env, agent, axis, *([] if tasks is None else [tasks]))
    state, found = first_state(iteration), []
    rollout = jax.jit(iteration.rollout)
    for i in range(ROLLOUTS):
        after, trajectory, _ = rollout(state.replace(iteration=jnp.int32(i)))
        found.append((state, trajectory))
        state = after
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "axis"),
    [
        ("dqn", "cpu"),
        pytest.param("dqn", "few_kernels", marks=pytest.mark.slow),
        pytest.param("r2d2", "cpu", marks=pytest.mark.slow),
    ],
)
def test_the_row_of_a_last_observation_has_its_own_mask(algorithm: str, axis: str) -> None:
    # The maximum in a target (Mnih et al. 2015) is over the actions that are allowed in s'.
    ends = 0
    for _, trajectory in rollouts(algorithm, OneAllowed(), AXES[axis]):
        np.testing.assert_array_equal(trajectory.action_mask, trajectory.obs > 0)
        ends += int((~trajectory.valid).sum())
    assert ends > 20


@pytest.mark.slow
@pytest.mark.parametrize("axis", AXES)
def test_the_value_at_a_cut_is_of_an_action_that_is_allowed_there(axis: str) -> None:
    (state, trajectory), *_ = rollouts("pqn", OneAllowed(), AXES[axis])
    config = tiny_config("pqn")
    agent = algorithms.build_agent(config, OneAllowed.spec)
    # The network has no way to tell the masks: of each last observation the values of all actions.
    forward = jax.jit(lambda *x: agent.forward(agent.prepare(state.learner.policy), *x).q)
    count = trajectory.reward.shape[1]
    carry, seen = agent.initial_carry(count), 0
    for t in range(len(trajectory.reward)):
        out = agent.forward(
            state.learner.policy, trajectory.obs[t], carry, trajectory.reset[t], trajectory.action_mask[t]
        )
        carry = out.carry
        last = np.roll(np.asarray(trajectory.obs[t]), 1, axis=-1)  # the state after it
        q = forward(last, carry, jnp.zeros(count, bool), None)
        allowed = np.asarray(q)[np.arange(count), last.argmax(-1)]
        cut = np.asarray(trajectory.truncated[t])
        seen += int(cut.sum())
        np.testing.assert_allclose(trajectory.bootstrap[t], np.where(cut, allowed, 0), atol=1e-5)
    assert seen > 10


@pytest.mark.slow
@pytest.mark.parametrize("axis", AXES)
def test_the_value_of_a_game_that_is_cut_off_is_of_a_move_that_is_allowed_there(axis: str) -> None:
    games = {"selfplay__enabled": True, "selfplay__groups": 4, "env__name": "jaxrl:TicTacToe"}
    (state, trajectory), *_ = rollouts("pqn", GameEnv(OneAllowedGame()), AXES[axis], **games)
    agent = algorithms.build_agent(tiny_config("pqn", **games), GameEnv(OneAllowedGame()).spec)
    acting = agent.prepare(state.learner.policy)
    forward = jax.jit(lambda *x: agent.forward(acting, *x))
    count = trajectory.reward.shape[1]
    carry, seen = agent.initial_carry(count), 0
    for t in range(len(trajectory.reward)):
        carry = forward(trajectory.obs[t], carry, trajectory.reset[t], trajectory.action_mask[t]).carry
        cut = np.asarray(trajectory.truncated[t])
        seen += int(cut.sum())
        # Which move is allowed at the end follows from the observation: after the learner's last move or,
        # if the opponent has made the fifth, after one more.
        for more in (1, 2):
            last = np.roll(np.asarray(trajectory.obs[t]), more, axis=-1)
            q = np.asarray(forward(last, carry, jnp.zeros(count, bool), None).q)
            allowed = q[np.arange(count), last.argmax(-1)]
            of_these = cut & (_moves_of_last_step(trajectory, t) == more)
            np.testing.assert_allclose(
                np.asarray(trajectory.bootstrap[t])[of_these], allowed[of_these], atol=1e-5
            )
    assert seen > 10


def _moves_of_last_step(trajectory: Trajectory, t: int) -> np.ndarray:
    """int[B], moves in row t of a game that it ends: the learner's, and if the fifth is not that, another."""
    waits = np.asarray(~trajectory.valid)
    begins = [np.flatnonzero(np.asarray(trajectory.reset)[: t + 1, b])[-1] for b in range(waits.shape[1])]
    second = np.array([bool(i > 0 and waits[i - 1, b]) for b, i in enumerate(begins)])
    return np.where(second, 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["cpu", pytest.param("few_kernels", marks=pytest.mark.slow)])
def test_an_episode_belongs_to_the_task_that_it_was_played_with(axis: str) -> None:
    # The reset is made in the step that ends an episode, its last observation is a row after that.
    ends = 0
    for _, trajectory in rollouts("dqn", Corridor(), AXES[axis], Drawn()):
        rows = trajectory.episodes
        np.testing.assert_array_equal(rows.task["level"], trajectory.obs[..., 0])
        ended = np.asarray(rows.ended)
        level = np.asarray(rows.task["level"])[ended]
        np.testing.assert_array_equal(np.asarray(rows.length)[ended], level + 1)
        np.testing.assert_array_equal(np.asarray(rows.episode_return)[ended], level)
        ends += len(level)
    assert ends > 20


@pytest.mark.slow
def test_the_mean_reward_is_of_steps_alone() -> None:
    # Each step rewards with 1; nothing steps in the row of a last observation.
    config = tiny_config("dqn")
    iteration = Iteration.build(config, OneAllowed(), algorithms.build_agent(config, OneAllowed.spec), Axis())
    _, metrics = jax.jit(iteration.iterate)(first_state(iteration))
    assert float(metrics["dqn/reward"].value()) == 1.0
    length = config.learner.rollout_length
    steps = length - length // (LIMIT + 1)  # each episode of LIMIT steps has a row for its last observation
    assert float(metrics["dqn/transitions"].value()) == pytest.approx(steps / length)
