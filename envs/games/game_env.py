"""A two-player game as an environment for one of its players."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.games import Game, players
from jaxrl.envs.names import changed_call


@flax.struct.dataclass
class GameEnvState:
    """A game in which one seat is the agent's."""

    game: Any
    seat: jax.Array  # int32[], the agent's
    owed: jax.Array  # float32[], what the agent got before its first turn
    lead: jax.Array  # float32[], what it got more than the opponent until now


class GameEnv(JaxEnv):
    """A game as one of its players sees it; a scripted opponent has the other seat.

    A step is the agent's move and the opponent's until it is the agent's turn again; the reward is what these
    moves gave the agent. The first step also has the reward of the moves before it: a game may be over by
    then, and its episode is that step, whatever the action. `info["success"]` is whether the agent has won:
    whether its return is above the opponent's.

    Args:
      game: the rules.
      opponent: as of `players.make`.
      seat: of the agent: 0 begins, 1 does not, -1 samples it at each reset.
    """

    def __init__(self, game: Game, opponent: str = players.RANDOM, seat: int = -1):
        label = game.spec.name
        if seat not in (-1, 0, 1) or isinstance(seat, bool):
            raise ValueError(f"{label}: seat (={seat!r}) must be 0, 1, or -1 for either")
        self.game = game
        self._seat = seat
        self._opponent = players.make(label, game, opponent)
        self.spec = dataclasses.replace(
            game.spec,
            name=changed_call(label, GameEnv, {"opponent": opponent, "seat": seat}),
            has_action_mask=True,
            reports=(InfoMetric("success", "last"),),
        )

    def reset(self, key: jax.Array) -> tuple[GameEnvState, Any]:
        start_key, seat_key, others_key = jax.random.split(key, 3)
        game = self.game.start(start_key)
        drawn = jax.random.bernoulli(seat_key).astype(jnp.int32)
        seat = drawn if self._seat < 0 else jnp.int32(self._seat)
        game, got = self._others(game, seat, others_key)
        return GameEnvState(game, seat, got[seat], got[seat] - got[1 - seat]), self.game.observe(game, seat)

    def step(self, key: jax.Array, state: GameEnvState, action: jax.Array) -> tuple[GameEnvState, TimeStep]:
        step_key, others_key = jax.random.split(key)
        game = self.game.play(step_key, state.game, action)
        got = self.game.rewards(game)
        # A game that was over before the agent's first turn stands still.
        was_over = self.game.is_over(state.game)
        game = jax.tree.map(lambda old, new: jnp.where(was_over, old, new), state.game, game)
        got = jnp.where(was_over, 0.0, got)
        game, more = self._others(game, state.seat, others_key)
        got = got + more
        reward = got[state.seat] + state.owed
        lead = state.lead + got[state.seat] - got[1 - state.seat]
        terminated, truncated = self.game.ends(game)
        return GameEnvState(game, state.seat, jnp.zeros((), jnp.float32), lead), TimeStep(
            obs=self.game.observe(game, state.seat),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            info={"success": (terminated | truncated) & (lead > 0)},
        )

    def action_mask(self, state: GameEnvState) -> jax.Array:
        return self.game.choices(state.game)

    def _others(self, game: Any, seat: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        """The game when it is the agent's turn or over; float32[2], what each seat got until then."""

        def waits(loop: tuple[Any, jax.Array, jax.Array]) -> jax.Array:
            game, *_ = loop
            return (self.game.seat(game) != seat) & ~self.game.is_over(game)

        def move(loop: tuple[Any, jax.Array, jax.Array]) -> tuple[Any, jax.Array, jax.Array]:
            game, got, key = loop
            key, choice_key, step_key = jax.random.split(key, 3)
            game = self.game.play(step_key, game, self._opponent(game, choice_key))
            return game, got + self.game.rewards(game), key

        game, got, _ = jax.lax.while_loop(waits, move, (game, jnp.zeros(2, jnp.float32), key))
        return game, got
