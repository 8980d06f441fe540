"""Games against opponents, held against a plain loop over the bare rules with each policy called alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.games import Game
from jaxrl.experience.opponents.matches import Matches, Seats
from jaxrl.types import Acting, Axis
from tests.experience.opponents.self_play import iteration

T, B, LATEST, POOLED = 24, 8, 2, 2
# As `Matches` folds keys; written out, so that a change of them is noticed.
RESET, SEAT, OWN, OTHER, NOISE = 0x52455345, 0x53454154, 0x4F574E, 0x4F544845, 0x4E4F4953


def players() -> tuple[Any, Acting, Acting]:
    """(agent, the policy, two other ones [2, ...]), so different that each plays its own way."""
    agent = iteration().collector.agent
    every = [jax.jit(agent.init)(jax.random.key(i)) for i in range(3)]
    # Fresh heads are near 0: then all would play at random, and nobody would see who plays.
    sharp = [jax.tree.map(lambda x, i=i: 6.0 * x + 0.05 * i, acting) for i, acting in enumerate(every)]
    return agent, sharp[0], jax.tree.map(lambda *x: jnp.stack(x), *sharp[1:])


class Programs:
    """The calls of a game and an agent, each a program: operation by operation they take far longer."""

    def __init__(self, game: Game, agent: Any):
        for name in ("start", "play", "seat", "observe", "rewards", "is_over", "action_mask"):
            setattr(self, name, jax.jit(getattr(game, name)))
        self.initial_carry, self.forward = agent.initial_carry, jax.jit(agent.forward)
        self.choose = jax.jit(agent.choose)
        self.draw_noise = jax.jit(lambda key, index: agent.draw_noise(key, (), index))


class Loop:
    """One environment: Python, one call at a time."""

    def __init__(self, programs: Any, opponent: Acting, index: int, key: jax.Array):
        self.programs, self.opponent, self.index = programs, opponent, index
        self.begin(key)

    def begin(self, key: jax.Array) -> None:
        self.seat = int(jax.random.bernoulli(jax.random.fold_in(key, SEAT)))
        self.state = self.programs.start(key)
        self.carry, self.fresh = self.programs.initial_carry(1), True
        self.waits = int(self.programs.seat(self.state)) != self.seat

    @property
    def obs(self) -> np.ndarray:
        return np.asarray(self.programs.observe(self.state, jnp.int32(self.seat)))

    def step(self, key: jax.Array, action: int) -> tuple[float, bool, np.ndarray]:
        reward = 0.0
        if not self.waits:
            self.state = self.programs.play(jax.random.fold_in(key, OWN), self.state, jnp.int32(action))
            reward += float(self.programs.rewards(self.state)[self.seat])
        key_of_move = jax.random.fold_in(key, 0)
        if not self.programs.is_over(self.state):
            other = 1 - self.seat
            one = lambda x: jnp.asarray(x)[None]  # noqa: E731
            out = self.programs.forward(
                self.opponent,
                one(self.programs.observe(self.state, jnp.int32(other))),
                self.carry,
                jnp.array([self.fresh]),
                one(self.programs.action_mask(self.state)),
            )
            noise = self.programs.draw_noise(jax.random.fold_in(key_of_move, NOISE), self.index)
            move = int(self.programs.choose(out, noise[None])[0][0])
            assert self.programs.action_mask(self.state)[move]
            self.carry, self.fresh = out.carry, False
            key_of_other = jax.random.fold_in(key_of_move, OTHER)
            self.state = self.programs.play(key_of_other, self.state, jnp.int32(move))
            reward += float(self.programs.rewards(self.state)[self.seat])
        final, over = self.obs, bool(self.programs.is_over(self.state))
        self.waits = False
        if over:
            self.begin(jax.random.fold_in(key, RESET))
        return reward, over, final


@pytest.mark.slow
def test_matches_are_a_plain_loop_over_the_game() -> None:
    """Seats, rewards, the next state after the other's move, masks, and carries of the opponents' own.

    A snapshot in the pool acts as its parameters do alone.
    """
    agent, now, snapshots = players()
    program = iteration()
    game = program.learning.opponents.matches.game
    seats = Seats(agent, LATEST, POOLED)
    matches = Matches(program.collector.env.spec, game, seats, Axis(), now=now, snapshots=snapshots)
    keys_B = jax.random.split(jax.random.key(5), B)
    of_group = [now, now, *(jax.tree.map(lambda x, i=i: x[i], snapshots) for i in range(POOLED))]
    programs = Programs(game, agent)
    loops = [Loop(programs, of_group[b % 4], b, keys_B[b]) for b in range(B)]
    rng = np.random.default_rng(2)
    state, obs = jax.jit(matches.reset)(keys_B)
    step = jax.jit(matches.step)
    results = np.zeros((B, 3))
    totals, ended = np.zeros(B), 0
    for t in range(T):
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_B, t)
        np.testing.assert_array_equal(state.seat, [loop.seat for loop in loops])
        np.testing.assert_array_equal(matches.is_turn(state), [not loop.waits for loop in loops])
        np.testing.assert_array_equal(obs, [loop.obs for loop in loops])
        mask = np.asarray(matches.action_mask(state))
        action = [int(rng.choice(np.flatnonzero(mask[b]))) for b in range(B)]
        state, timestep = step(keys, state, jnp.array(action))
        obs = timestep.obs
        for b, loop in enumerate(loops):
            reward, over, final = loop.step(keys[b], action[b])
            totals[b] += reward
            assert (float(timestep.reward[b]), bool(timestep.terminated[b])) == (reward, over), (t, b)
            np.testing.assert_array_equal(timestep.final_obs[b], final)
            assert bool(timestep.info["success"][b]) == (over and totals[b] > 0)
            if over:
                results[b, int(1 - np.sign(totals[b]))] += 1
                totals[b] = 0
                ended += 1
    assert ended > 2 * B
    assert {0, 1} == {loop.seat for loop in loops}
    np.testing.assert_array_equal(state.results, results)
    assert (results.sum(axis=0) > 0).all(), results  # won, drawn and lost


class Uneven(Game):
    """Seat 1 moves twice after each move of seat 0, and pays 1 each time; after six moves it is over."""

    alternates = False

    def __init__(self, spec: Any):
        self.spec = spec

    def start(self, key: jax.Array) -> jax.Array:
        return jnp.int32(0)

    def play(self, key: jax.Array, state: jax.Array, action: jax.Array) -> jax.Array:
        return state + 1

    def seat(self, state: jax.Array) -> jax.Array:
        return (state % 3 > 0).astype(jnp.int32)

    def observe(self, state: jax.Array, seat: jax.Array) -> jax.Array:
        return jnp.full((3, 3, 2), state, jnp.float32)

    def action_mask(self, state: jax.Array) -> jax.Array:
        return jnp.ones(9, bool)

    def rewards(self, state: jax.Array) -> jax.Array:
        paid = ((state - 1) % 3 > 0).astype(jnp.float32)
        return jnp.stack([paid, -paid])

    def ends(self, state: jax.Array) -> tuple[jax.Array, jax.Array]:
        return state >= 6, jnp.zeros((), bool)


@pytest.mark.slow
def test_opponents_move_until_it_is_the_learners_turn() -> None:
    agent, now, snapshots = players()
    program = iteration()
    spec = program.collector.env.spec
    seats = Seats(agent, LATEST, POOLED)
    matches = Matches(spec, Uneven(spec), seats, Axis(), now=now, snapshots=snapshots)
    keys = jax.random.split(jax.random.key(5), B)
    state, _ = jax.jit(matches.reset)(keys)
    state, step = jax.jit(matches.step)(keys, state, jnp.zeros(B, jnp.int32))
    first = np.asarray(state.seat) == 0
    assert 0 < first.sum() < B
    # Both of seat 1's moves pay seat 0; seat 1 has waited for seat 0's only move.
    np.testing.assert_array_equal(step.reward, np.where(first, 2.0, 0.0))
    np.testing.assert_array_equal(state.game, np.where(first, 3, 1))


@pytest.mark.slow
def test_random_moves_rise_from_environment_to_environment() -> None:
    """In the games where the policy plays itself; snapshots in the pool play as they are."""
    agent, now, snapshots = players()
    program, count, largest = iteration(), 4_000, 0.9
    game = program.learning.opponents.matches.game
    seats = Seats(agent, LATEST, POOLED)
    keys = jax.random.split(jax.random.key(5), count)
    boards = []
    for random_moves in (0.0, largest):
        spec = program.collector.env.spec
        matches = Matches(spec, game, seats, Axis(), random_moves, now, snapshots)
        state, _ = jax.jit(matches.reset)(keys)
        waited = np.asarray(state.waits)  # the opponent has the first move
        state, _ = jax.jit(matches.step)(keys, state, jnp.zeros(count, jnp.int32))
        boards.append(np.asarray(state.game.board))
    assert (boards[1] > 0).sum() == (boards[0] > 0).sum()  # one stone each, on a free cell
    changed = (boards[0] != boards[1]).any(axis=1)
    of_pool = np.arange(count) % 4 >= LATEST
    assert not changed[of_pool].any()
    place = np.arange(count) // 4 / (count // 4 - 1)
    counted = waited & ~of_pool
    for low, high in ((0.0, 0.2), (0.4, 0.6), (0.8, 1.0)):
        part = counted & (place >= low) & (place <= high)
        expected = largest * (low + high) / 2
        # One in nine random moves is the one that the policy would have made, or more where it varies.
        assert 0.75 * expected < changed[part].mean() < expected, (low, changed[part].mean(), part.sum())
