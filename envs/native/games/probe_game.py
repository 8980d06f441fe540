"""A probe of self-play: a two-player game whose optimal moves and values are known."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Discrete, EnvSpec
from jaxrl.envs.games.game import Game

ROUNDS = 2
# What the second move of a round gives seat 0, by its own move and the other's; seat 1 gets the opposite.
PAYOFFS = ((1.0, -1.0), (0.6, 0.5))


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
