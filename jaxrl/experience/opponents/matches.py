"""A batch of two-player games in which the learner has one seat and opponents the other, and their moves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms import Agent
from jaxrl.envs.base import EnvSpec, TimeStep
from jaxrl.envs.games import Game
from jaxrl.envs.games.players import evenly
from jaxrl.envs.trees import select_rows, strong_types
from jaxrl.types import Acting, Array, Axis, PyTree

# What the keys of an environment are folded with; far above any step or player of a game.
_RESET = 0x52455345
_SEAT = 0x53454154
_OWN = 0x4F574E
_OTHER = 0x4F544845
_NOISE = 0x4E4F4953
_ERROR = 0x4552524F
WINS, DRAWS, _ = range(3)  # and losses


@flax.struct.dataclass
class Turn:
    """The view of opponents before their move; leaves [B, ...].

    Attributes:
      mask: bool[B, A], the allowed moves.
      reset: bool[B], True if it is the first observation of their game.
      noise: of `Agent.draw_noise`.
    """

    obs: PyTree
    mask: Array
    carry: PyTree
    reset: Array
    noise: PyTree


@dataclass(frozen=True)
class Seats:
    """The groups of environments that share one opponent each.

    Environment i, counted over all devices, is of group i modulo `latest + pooled`. So each device has the
    same number of environments of each group, and what it computes does not depend on how many devices there
    are.

    Attributes:
      latest: groups whose opponent is the policy as it is now; the first ones.
      pooled: groups whose opponents are snapshots.
    """

    agent: Agent
    latest: int
    pooled: int

    @property
    def groups(self) -> int:
        return self.latest + self.pooled

    def of_groups(self, x_G: Array, count: int) -> Array:
        """[B], what each of `count` environments of this device has of its group."""
        return jnp.tile(x_G, (count // self.groups, *[1] * (x_G.ndim - 1)))

    def over_groups(self, x_B: Array) -> Array:
        """[G, ...], sums over the environments of each group on this device."""
        return x_B.reshape(-1, self.groups, *x_B.shape[1:]).sum(axis=0)

    def move(self, now: Acting, snapshots: Acting, turn: Turn) -> tuple[Array, PyTree]:
        """The moves [B] of all opponents, and their carries after them.

        One product for all environments that play the policy as it is now, and a batched one for the others:
        the parameters of a snapshot are there once for each group, never for each environment.

        Args:
          snapshots: of each pooled group, leaves [pooled, ...].
        """
        rows = jax.tree.map(lambda x: x.reshape(-1, self.groups, *x.shape[1:]), turn)
        parts = []
        if self.latest:
            own = jax.tree.map(lambda x: x[:, : self.latest].reshape(-1, *x.shape[2:]), rows)
            moved = self._choose(now, own)
            parts.append(jax.tree.map(lambda x: x.reshape(-1, self.latest, *x.shape[1:]), moved))
        if self.pooled:
            theirs = jax.tree.map(lambda x: x[:, self.latest :], rows)
            choose: Callable[..., Any] = jax.vmap(self._choose, in_axes=(0, 1), out_axes=1)
            parts.append(choose(snapshots, theirs))
        joined = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *parts)
        action, carry = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), joined)
        return action, carry

    def _choose(self, acting: Acting, turn: Turn) -> tuple[Array, PyTree]:
        out = self.agent.forward(acting, turn.obs, turn.carry, turn.reset, turn.mask)
        action, _ = self.agent.choose(out, turn.noise)
        return self.agent.to_env(action), out.carry


@flax.struct.dataclass
class MatchState:
    """State of B games.

    Attributes:
      game: of the rules, leaves [B, ...].
      seat: int32[B], the learner's.
      waits: bool[B]; the game has begun and the other seat has the first move, so that the learner has no
        turn: the row is no transition, its action is ignored.
      carry: tree of [B, ...], the opponents' recurrent carries.
      fresh: bool[B]; the opponent has not moved in this game, so that its carry counts as zeros.
      lead: float32[B], what the learner got more than the opponent in this game.
      results: float32[B, 3], games won, drawn and lost by the learner since `clear_results`.
    """

    game: PyTree
    seat: Array
    waits: Array
    carry: PyTree
    fresh: Array
    lead: Array
    results: Array


@dataclass(frozen=True)
class Matches:
    """Games that restart where they have ended, with the interface of `VectorEnv`.

    A step is the learner's move and then the opponents': its reward is what both gave the learner, and the
    observation after it is the one of the learner's next turn. If the learner has the second seat, a game
    begins with an extra row that only waits (`is_turn`), so that a step never takes more than one pass of
    opponents who alternate.

    Attributes:
      spec: of the game as its player sees it.
      seats: who plays against whom.
      now: the policy as it is now, for the opponents; None if only `reset` is called.
      snapshots: the opponents of the pooled groups, leaves [pooled, ...].
      random_moves: the largest probability with which an opponent that is the policy as it is now samples its
        move uniformly; in each of its groups they rise from 0 to this, from the first environment to the
        last.
    """

    spec: EnvSpec
    game: Game
    seats: Seats
    axis: Axis
    random_moves: float = 0.0
    now: Acting | None = None
    snapshots: Acting | None = None

    # First states are computed for all environments at once, and no first game is cut off.
    resets_in_rounds: ClassVar[bool] = False
    staggered: ClassVar[bool] = False

    def reset(self, keys_B: Array, task_B: PyTree = None) -> tuple[MatchState, PyTree]:
        """Starts a game in every environment; returns `(state, obs_B)`."""
        (n,) = keys_B.shape
        (game, seat, waits), obs = jax.vmap(self._begin)(keys_B)
        state = MatchState(
            game=game,
            seat=seat,
            waits=waits,
            carry=self.seats.agent.initial_carry(n),
            fresh=jnp.ones(n, bool),
            lead=jnp.zeros(n, jnp.float32),
            results=jnp.zeros((n, 3), jnp.float32),
        )
        return state, obs

    def starts(self, keys_B: Array, task_B: PyTree = None) -> tuple[Any, PyTree]:
        """The games that `step` with these keys starts, if any: `((game, seat, waits), obs_B)`."""
        return jax.vmap(lambda key: self._begin(jax.random.fold_in(key, _RESET)))(keys_B)

    def step(
        self, keys_B: Array, state: MatchState, action_B: Array, starts: PyTree = None, task_B: PyTree = None
    ) -> tuple[MatchState, TimeStep]:
        """Advances every game to the learner's next turn; see `VectorEnv.step`."""
        game, reward, lead = self._play(keys_B, _OWN, state, action_B)
        moved = dataclasses.replace(
            state,
            game=select_rows(state.waits, state.game, game),
            lead=state.lead + jnp.where(state.waits, 0.0, lead),
        )
        reward = jnp.where(state.waits, 0.0, reward)
        moved, reward = self._other_moves(keys_B, moved, reward)
        terminated, truncated = jax.vmap(self.game.ends)(moved.game)
        done = terminated | truncated
        lead = moved.lead
        moved = dataclasses.replace(
            moved,
            waits=jnp.zeros_like(done),
            lead=jnp.where(done, 0.0, lead),
            results=state.results
            + (jnp.stack([lead > 0, lead == 0, lead < 0], axis=-1) & done[:, None]).astype(jnp.float32),
        )
        final_obs = jax.vmap(self.game.observe)(moved.game, moved.seat)
        after, obs = self._restart(keys_B, moved, final_obs, done, starts)
        timestep = TimeStep(
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final_obs=final_obs,
            final_mask=jax.vmap(self.game.choices)(moved.game),
            info={"success": done & (lead > 0)},
        )
        return after, timestep

    def select(self, mask_B: Array, on_true: MatchState, on_false: MatchState) -> MatchState:
        """See `VectorEnv.select`."""
        return select_rows(mask_B, on_true, on_false)

    def action_mask(self, state: MatchState) -> Array:
        """bool[B, A], the moves allowed to the seat that has the turn."""
        return jax.vmap(self.game.choices)(state.game)

    def solve(self, state: Any) -> Array:
        """None has a solver: `spec.has_solver` is False."""
        raise NotImplementedError

    def is_turn(self, state: MatchState) -> Array:
        """bool[B], True if the learner's next action is a move; see `MatchState.waits`."""
        return ~state.waits

    def clear_results(self, state: MatchState) -> MatchState:
        """With no games counted."""
        return dataclasses.replace(state, results=jnp.zeros_like(state.results))

    def _begin(self, key: Array) -> tuple[tuple[PyTree, Array, Array], PyTree]:
        seat = jax.random.bernoulli(jax.random.fold_in(key, _SEAT)).astype(jnp.int32)
        game = strong_types(self.game.start(key))
        return (game, seat, self.game.seat(game) != seat), self.game.observe(game, seat)

    def _other_moves(self, keys_B: Array, state: MatchState, reward: Array) -> tuple[MatchState, Array]:
        """(state, reward) when it is the learner's turn everywhere, or the game is over."""
        if self.game.alternates:
            return self._other_move(keys_B, jnp.zeros((), jnp.int32), state, reward)

        def move(loop: tuple[Array, MatchState, Array]) -> tuple[Array, MatchState, Array]:
            count, state, reward = loop
            return count + 1, *self._other_move(keys_B, count, state, reward)

        _, state, reward = jax.lax.while_loop(
            lambda loop: jnp.any(self._is_other_turn(loop[1])),
            move,
            (jnp.zeros((), jnp.int32), state, reward),
        )
        return state, reward

    def _is_other_turn(self, state: MatchState) -> Array:
        seat = jax.vmap(self.game.seat)(state.game)
        over = jax.vmap(self.game.is_over)(state.game)
        return (seat != state.seat) & ~over

    def _other_move(
        self, keys_B: Array, count: Array, state: MatchState, reward: Array
    ) -> tuple[MatchState, Array]:
        """(state, reward) after one move of each opponent whose turn it is."""
        assert self.now is not None and self.snapshots is not None  # noqa: PT018
        turn = self._is_other_turn(state)
        keys_B = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_B, count)
        agent = self.seats.agent
        index = self.axis.index() * len(keys_B) + jnp.arange(len(keys_B))
        draw = lambda key, i: agent.draw_noise(jax.random.fold_in(key, _NOISE), (), i)  # noqa: E731
        seen = Turn(
            obs=jax.vmap(self.game.observe)(state.game, 1 - state.seat),
            mask=jax.vmap(self.game.choices)(state.game),
            carry=state.carry,
            reset=state.fresh,
            noise=jax.vmap(draw)(keys_B, index),
        )
        action, carry = self.seats.move(self.now, self.snapshots, seen)
        action = self._draw_errors(keys_B, index, seen.mask, action)
        game, more, lead = self._play(keys_B, _OTHER, state, action)
        state = dataclasses.replace(
            state,
            game=select_rows(turn, game, state.game),
            carry=select_rows(turn, carry, state.carry),
            fresh=state.fresh & ~turn,
            lead=state.lead + jnp.where(turn, lead, 0.0),
        )
        return state, reward + jnp.where(turn, more, 0.0)

    def _draw_errors(self, keys_B: Array, index: Array, mask: Array, action_B: Array) -> Array:
        """int32[B], the moves `action_B`, or random ones in their place, see `random_moves`."""
        if not self.random_moves:
            return action_B
        groups = self.seats.groups
        last = max(self.axis.size * len(keys_B) // groups - 1, 1)
        chance = self.random_moves * (index // groups).astype(jnp.float32) / last
        chance = jnp.where(index % groups < self.seats.latest, chance, 0.0)
        draw = lambda key: jax.random.split(jax.random.fold_in(key, _ERROR))  # noqa: E731
        keys = jax.vmap(draw)(keys_B)
        errs = jax.vmap(jax.random.uniform)(keys[:, 0]) < chance
        return jnp.where(errs, jax.vmap(evenly)(keys[:, 1], mask), action_B)

    def _play(
        self, keys_B: Array, stream: int, state: MatchState, action_B: Array
    ) -> tuple[PyTree, Array, Array]:
        """(games after a move in each; float32[B], what it gave the learner; and more than the other)."""

        def play(key: Array, game: PyTree, seat: Array, action: Array) -> tuple[PyTree, Array, Array]:
            game = strong_types(self.game.play(jax.random.fold_in(key, stream), game, action))
            return game, self.game.rewards(game)[seat], self.game.leads(game)[seat]

        return jax.vmap(play)(keys_B, state.game, state.seat, action_B)

    def _restart(
        self, keys_B: Array, state: MatchState, obs: PyTree, done: Array, starts: tuple[Any, PyTree] | None
    ) -> tuple[MatchState, PyTree]:
        """With new games where one has ended, whose opponents begin with a carry of zeros."""
        stepped = (state.game, state.seat, state.waits), obs
        if starts is None:
            begin = lambda: select_rows(done, self.starts(keys_B), stepped)  # noqa: E731
            (game, seat, waits), obs = jax.lax.cond(jnp.any(done), begin, lambda: stepped)
        else:
            (game, seat, waits), obs = select_rows(done, starts, stepped)
        after = dataclasses.replace(state, game=game, seat=seat, waits=waits, fresh=state.fresh | done)
        return after, obs
