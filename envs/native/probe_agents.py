"""Probes of self-play and of agents that share a policy, with known values."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.agents import MultiAgentEnv
from jaxrl.envs.base import Box, Discrete, EnvSpec, InfoMetric, TimeStep
from jaxrl.envs.games import Game

ROUNDS = 2
# What the second move of a round gives seat 0, by its own move and the other's; seat 1 gets the opposite.
PAYOFFS = ((1.0, -1.0), (0.6, 0.5))
STEPS = 4
# Of each agent: the step that is its first, and the one before which it has gone.
ENTERS = (0, 0, 0, 1)
LEAVES = (1, 2, STEPS, STEPS)
# The last agent's episode is cut off, the others' terminate.
_IS_CUT = (False, False, False, True)
# The values of absent agents, which nobody may read.
NOISE = 1000.0


@flax.struct.dataclass
class ProbeGameState:
    """int32[] each: moves made, the last move of seat 0 and of seat 1."""

    moves: jax.Array
    first: jax.Array
    second: jax.Array


class ProbeGame(Game):
    """Two rounds of one move each. Of three moves the last is never allowed.

    Seat 0 moves, seat 1 sees it, and its own move gives seat 0 its entry of the table `PAYOFFS`. The best
    moves of both are 1: in each round seat 0 gets 0.5, and seat 1 loses as much. Seat 0 gets -1 if it hopes
    for the 1.0 in the table. So the value of seat 0's turn is 0.5 for each remaining round, discounted, and
    the value of seat 1's turn after a best move is the opposite; after a worse one seat 1 gains 1 in
    that round. It fails if a reward is seen from the wrong seat, if the next state is the one before the
    other's move, or if the mask is lost.

    Observation float32[5]: the seat; the round; and at seat 1's turn one-hot whether seat 0 has moved 0 or
    1; 1.
    """

    def __init__(self) -> None:
        self.spec = EnvSpec(
            name="jaxrl:ProbeGame",
            observation_space=Box.of(0.0, 1.0, (5,)),
            action_space=Discrete(3),
            max_episode_steps=ROUNDS,
            has_action_mask=True,
        )

    def start(self, key: jax.Array) -> ProbeGameState:
        zero = jnp.zeros((), jnp.int32)
        return ProbeGameState(zero, zero, zero)

    def play(self, key: jax.Array, state: ProbeGameState, action: jax.Array) -> ProbeGameState:
        action = action.astype(jnp.int32)
        is_first = self.seat(state) == 0
        return ProbeGameState(
            moves=state.moves + 1,
            first=jnp.where(is_first, action, state.first),
            second=jnp.where(is_first, state.second, action),
        )

    def seat(self, state: ProbeGameState) -> jax.Array:
        return state.moves % 2

    def observe(self, state: ProbeGameState, seat: jax.Array) -> jax.Array:
        seen = jnp.arange(2) == jnp.where(self.seat(state) == 1, state.first, -1)
        own = jnp.stack([seat == 1, state.moves >= 2])
        return jnp.concatenate([own, seen, jnp.ones(1, bool)]).astype(jnp.float32)

    def action_mask(self, state: ProbeGameState) -> jax.Array:
        return jnp.arange(3) < 2

    def rewards(self, state: ProbeGameState) -> jax.Array:
        paid = (state.moves > 0) & (self.seat(state) == 0)
        payoff = jnp.asarray(PAYOFFS, jnp.float32)[state.first, jnp.minimum(state.second, 1)]
        first = jnp.where(paid, payoff, 0.0)
        return jnp.stack([first, -first])

    def ends(self, state: ProbeGameState) -> tuple[jax.Array, jax.Array]:
        over = state.moves >= 2 * ROUNDS
        return over, jnp.zeros_like(over)


@flax.struct.dataclass
class ProbeAgentsState:
    """int32[], steps made; bool[A], what each agent is to do."""

    time: jax.Array
    asked: jax.Array


class ProbeAgents(MultiAgentEnv):
    """Each of four agents sees a bit, and gets 1 if its action is that bit; it sees a new one at each step.

    One is there for the first step, one for two, one for all four, and one from the second to the last, where
    its episode is cut off. Of three actions the last is never allowed. The best actions give 10 in an episode
    of 4 steps. The value of an agent with n steps to go is then 1 + gamma + ... to n terms, and of the last,
    which sees no time, 1 / (1 - gamma). Absent agents get noise: it fails if rows
    without an agent carry loss or enter statistics, if agents are mixed up, or if one is taken for ended
    because another is.

    Observation float32[9]: the agent, one-hot of four; how many steps it has to go, one-hot of four, zeros of
    the last agent; the bit as 1 or -1. `info["hits"]`: how many agents got 1.
    The global state has the time and all bits.
    """

    def __init__(self) -> None:
        self.spec = EnvSpec(
            name="jaxrl:ProbeAgents",
            observation_space=Box.of(-NOISE, NOISE, (2 * STEPS + 1,)),
            action_space=Discrete(3),
            max_episode_steps=STEPS,
            has_action_mask=True,
            reports=(InfoMetric("hits", "sum"),),
            agents=("first", "second", "third", "late"),
            central_observation=Box.of(0, 1, (STEPS + 1 + 4,)),
        )

    def reset(self, key: jax.Array) -> tuple[ProbeAgentsState, Any]:
        state = ProbeAgentsState(jnp.zeros((), jnp.int32), jax.random.bernoulli(key, 0.5, (4,)))
        return state, self._observe(state)

    def step(
        self, key: jax.Array, state: ProbeAgentsState, action: jax.Array
    ) -> tuple[ProbeAgentsState, TimeStep]:
        there = self.present(state)
        hits = there & (action == state.asked.astype(jnp.int32))
        state = ProbeAgentsState(state.time + 1, jax.random.bernoulli(key, 0.5, (4,)))
        leaves = there & (state.time >= jnp.asarray(LEAVES))
        is_cut = jnp.asarray(_IS_CUT)
        timestep = TimeStep(
            obs=self._observe(state),
            reward=jnp.where(there, hits.astype(jnp.float32), NOISE),
            terminated=jnp.where(there, leaves & ~is_cut, True),
            truncated=leaves & is_cut,
            info={"hits": hits.sum(dtype=jnp.float32)},
        )
        return state, timestep

    def present(self, state: ProbeAgentsState) -> jax.Array:
        return (state.time >= jnp.asarray(ENTERS)) & (state.time < jnp.asarray(LEAVES))

    def central(self, state: ProbeAgentsState) -> jax.Array:
        """float32[9]: the steps made, one-hot of five, and what each agent is to do."""
        return jnp.concatenate([jax.nn.one_hot(state.time, STEPS + 1), state.asked.astype(jnp.float32)])

    def action_mask(self, state: ProbeAgentsState) -> jax.Array:
        return jnp.broadcast_to(jnp.arange(3) < 2, (4, 3)) & self.present(state)[:, None]

    def render(self, state: ProbeAgentsState) -> np.ndarray:
        """A column for each agent, light where it is there."""
        there = np.asarray(self.present(state))
        return np.repeat(np.repeat(there * np.uint8(255), 8)[None, :, None], 8, axis=0).repeat(3, axis=2)

    def _observe(self, state: ProbeAgentsState) -> jax.Array:
        left = jnp.asarray(LEAVES) - state.time
        shown = jnp.where(jnp.asarray(_IS_CUT), -1, left - 1)
        who = jnp.eye(4)
        bit = jnp.where(state.asked, 1.0, -1.0)[:, None]
        obs = jnp.concatenate([who, jax.nn.one_hot(shown, STEPS), bit], axis=1)
        # The successor of a last step is a real observation: its value stands for what was cut off.
        known = self.present(state) | (left == 0)
        return jnp.where(known[:, None], obs, NOISE)
