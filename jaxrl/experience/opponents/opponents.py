"""The pool of opponents: the snapshots kept, who plays which of them, and their Elo ratings (Elo 1978)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms import Agent
from jaxrl.config import Config
from jaxrl.config.curriculum import OLDEST, PRIORITIZED, SelfPlayConfig
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.games import game_of
from jaxrl.experience.opponents.matches import DRAWS, WINS, Matches, Seats
from jaxrl.metrics.reduction import Last, LastMean, Mean, Metric, Metrics
from jaxrl.types import Acting, Array, Axis, Bulk, PyTree

# A score of 1 has the weight 0; but a policy that beats all of a pool must still play somebody.
_LEAST_WEIGHT = 1e-3
# A player who is rated so much higher scores ten times as much as the other.
SCALE = 400.0
# Further from all opponents no number of games can tell.
_FURTHEST = 1_200.0
_HALVINGS = 24  # of an interval of thousands, to less than a thousandth


@flax.struct.dataclass
class OpponentState:
    """The pool and who plays whom; replicated. Of P + 1 slots one is always free for the next snapshot.

    A snapshot is written to a free slot alone: if its iteration fails, the numbers beside the slots are
    rolled back and it does not count.

    Attributes:
      snapshots: the parameters that acted when each was taken, leaves [P + 1, ...].
      number: int32[P + 1], 1 for the first snapshot of the run and so on; 0 for a free slot.
      rating: float32[P + 1], Elo, as the policy's was when it was taken.
      record: float32[P + 1, 3], wins, draws and losses of the policy against each, of its latest games.
      recent: float32[P + 1, 3], likewise of its latest games with all of them, by which it is rated: older
        ones were of a policy that played worse.
      playing: int32[pooled], the slot that each of the groups plays against.
      swapped: bool[pooled], True if that is another opponent than in the last iteration, so that games start
        anew.
      snapshot_age: int32[], steps since the last snapshot.
      draw_age: int32[], steps since opponents were sampled.
      elo: float32[], the rating of the policy.
    """

    snapshots: Annotated[Acting, Bulk()]
    number: Array
    rating: Array
    record: Array
    recent: Array
    playing: Array
    swapped: Array
    snapshot_age: Array
    draw_age: Array
    elo: Array


@dataclass(frozen=True)
class Opponents:
    """Decides over opponents between iterations; pure functions, the same on all devices."""

    config: SelfPlayConfig
    matches: Matches
    steps_per_iteration: int
    axis: Axis

    metrics: ClassVar[Mapping[str, type[Metric]]] = {
        "selfplay/win_rate": Mean,
        "selfplay/draw_rate": Mean,
        "selfplay/elo": LastMean,
        "selfplay/pool": Last,
    }
    highlights: ClassVar[tuple[tuple[str, str], ...]] = (
        ("selfplay/win_rate", "wins against pool"),
        ("selfplay/elo", "elo"),
    )

    @property
    def seats(self) -> Seats:
        return self.matches.seats

    def init(self, acting: Acting) -> OpponentState:
        """A pool of one, the policy before it has learnt anything."""
        slots = self.config.pool_size + 1
        pooled = self.seats.pooled
        zeros = jnp.zeros(slots, jnp.float32)
        zero = jnp.zeros((), jnp.int32)
        first = jnp.float32(self.config.first_rating)
        return OpponentState(
            snapshots=jax.tree.map(lambda x: jnp.zeros((slots, *x.shape), x.dtype).at[0].set(x), acting),
            number=zeros.astype(jnp.int32).at[0].set(1),
            rating=zeros.at[0].set(first),
            record=jnp.zeros((slots, 3), jnp.float32),
            recent=jnp.zeros((slots, 3), jnp.float32),
            playing=jnp.zeros(pooled, jnp.int32),
            swapped=jnp.zeros(pooled, bool),
            snapshot_age=zero,
            draw_age=zero,
            elo=first,
        )

    def against(self, state: OpponentState, now: Acting) -> Matches:
        """The games of an iteration; the snapshots that are played are copied once for each group."""
        played = jax.tree.map(lambda x: x[state.playing], state.snapshots)
        return dataclasses.replace(self.matches, now=now, snapshots=played)

    def swaps(self, state: OpponentState, count: int) -> Array:
        """bool[B], the environments of this device whose opponent changed since the last iteration."""
        swapped_G = jnp.concatenate([jnp.zeros(self.seats.latest, bool), state.swapped])
        return self.seats.of_groups(swapped_G, count)

    def update(
        self, state: OpponentState, results_B: Array, now: Acting, key: Array
    ) -> tuple[OpponentState, Metrics]:
        """The state after an iteration, and its metrics.

        Args:
          results_B: float32[B, 3], games that this device's environments won, drew and lost.
          now: the policy, as it is to act from here on.
          key: the same on all devices.
        """
        results_G = self.axis.psum(self.seats.over_groups(results_B))[self.seats.latest :]
        # Beyond so many games, of an opponent and of all, older ones count less and less.
        most = self.config.games
        recent = state.recent.at[state.playing].add(results_G)
        recent *= jnp.minimum(1.0, float(most * self.seats.pooled) / jnp.maximum(recent.sum(), 1.0))
        newest = jnp.argmax(state.number)
        elo = rating_of(_score(recent), recent.sum(axis=1), state.rating, state.rating[newest])
        record = state.record.at[state.playing].add(results_G)
        record *= jnp.minimum(1.0, most / jnp.maximum(record.sum(axis=1, keepdims=True), 1.0))
        state = dataclasses.replace(
            state,
            record=record,
            recent=recent,
            elo=elo,
            snapshot_age=state.snapshot_age + self.steps_per_iteration,
            draw_age=state.draw_age + self.steps_per_iteration,
        )
        state = self._draw(self._with_snapshot(state, newest, now), key)
        games = results_G.sum()
        return state, {
            "selfplay/win_rate": Mean(results_G[:, WINS].sum(), games),
            "selfplay/draw_rate": Mean(results_G[:, DRAWS].sum(), games),
            # Without games against the pool nothing is known of it.
            "selfplay/elo": LastMean(state.elo, jnp.float32(self.seats.pooled > 0)),
            "selfplay/pool": Last(jnp.sum(state.number > 0, dtype=jnp.int32)),
        }

    def _with_snapshot(self, state: OpponentState, newest: Array, now: Acting) -> OpponentState:
        """With a snapshot of the policy if one is due, and without another one if the pool was full."""
        config = self.config
        slots = len(state.number)
        games = state.record[newest].sum()
        # The sum of a scaled record may be a rounding below the number of games.
        is_beaten = (games > config.games - 0.5) & (_score(state.record)[newest] > config.win_rate * games)
        due = is_beaten | (state.snapshot_age >= config.every_steps)
        taken = state.number[newest] + 1
        slot = jnp.argmin(state.number)  # the first free one
        place = jnp.where(due, slot, slots)  # beyond the last it is dropped
        number = state.number.at[place].set(taken, mode="drop")
        alive = number > 0
        rank = number.astype(jnp.float32) if config.drop == OLDEST else state.rating
        # Never the new one.
        victim = jnp.argmin(jnp.where(alive & (number != taken), rank, jnp.inf))
        is_full = jnp.sum(alive, dtype=jnp.int32) > config.pool_size
        number = number.at[jnp.where(is_full, victim, slots)].set(0, mode="drop")

        def of_pool(games: Array) -> Array:
            return jnp.where((number == 0)[:, None], 0.0, games.at[place].set(0.0, mode="drop"))

        return dataclasses.replace(
            state,
            snapshots=jax.tree.map(lambda x, y: x.at[place].set(y, mode="drop"), state.snapshots, now),
            number=number,
            rating=state.rating.at[place].set(state.elo, mode="drop"),
            record=of_pool(state.record),
            recent=of_pool(state.recent),
            snapshot_age=jnp.where(due, 0, state.snapshot_age),
        )

    def _draw(self, state: OpponentState, key: Array) -> OpponentState:
        """With other opponents if the time has come, or theirs is not in the pool any more.

        Of several groups the first always plays the newest snapshot, so that its games are counted.
        """
        pooled = self.seats.pooled
        alive = state.number > 0
        logits = jnp.where(alive, jnp.log(self._weights(state)), -jnp.inf)
        drawn = jax.random.categorical(key, logits, shape=(pooled,)).astype(jnp.int32)
        is_due = state.draw_age >= self.config.swap_steps
        playing = jnp.where(is_due | ~alive[state.playing], drawn, state.playing)
        if pooled > 1:
            playing = playing.at[0].set(jnp.argmax(state.number).astype(jnp.int32))
        return dataclasses.replace(
            state,
            playing=playing,
            swapped=playing != state.playing,
            draw_age=jnp.where(is_due, 0, state.draw_age),
        )

    def _weights(self, state: OpponentState) -> Array:
        """float32[P + 1], how often each is sampled, up to a factor."""
        if self.config.opponents != PRIORITIZED:
            return jnp.ones_like(state.rating)
        # (1 - score)^2, the hard opponents of Vinyals et al. 2019, with two drawn games added to each record.
        score = (_score(state.record) + 1.0) / (state.record.sum(axis=1) + 2.0)
        return jnp.maximum(jnp.square(1.0 - score), _LEAST_WEIGHT)


def build(config: Config, env: JaxEnv, agent: Agent, axis: Axis) -> Opponents | None:
    """The opponents of a configuration; None without self-play."""
    section = config.selfplay
    game = game_of(env)
    if not section.enabled or game is None:
        return None
    seats = Seats(agent, latest=section.latest_groups, pooled=section.pool_groups)
    matches = Matches(spec=env.spec, game=game, seats=seats, axis=axis, random_moves=section.random_moves)
    return Opponents(section, matches, config.steps_per_iteration, axis)


def _score(record: PyTree) -> Array:
    """float32[P], sums of scores: 1 a win, 0.5 a draw."""
    return record[:, WINS] + 0.5 * record[:, DRAWS]


def expected_score(difference: Array) -> Array:
    """The score, between 0 and 1, of a player whose rating is so much higher: 1 / (1 + 10^(-d / 400))."""
    return jax.nn.sigmoid(difference * (math.log(10.0) / SCALE))


def rating_of(score: Array, games: Array, ratings: Array, drawn_with: Array) -> Array:
    """The most likely rating of a player, given its opponents' ratings.

    The one R at which the scores equal the expected ones:

        sum_i n_i (s_i - E(R - R_i)) = 0

    found by halving an interval. One extra game counts, a draw with an opponent: without any loss there would
    be no largest likelihood.

    Args:
      score: float32[P], sums of scores against each opponent: 1 a win, 0.5 a draw.
      games: float32[P], how many; 0 leaves the opponent out.
      ratings: float32[P], of the opponents.
      drawn_with: float32[], the rating of the opponent in the extra game.
    """

    def excess(rating: Array) -> Array:
        expected = jnp.sum(games * expected_score(rating - ratings)) + expected_score(rating - drawn_with)
        return jnp.sum(jnp.where(games > 0, score, 0.0)) + 0.5 - expected

    played = games > 0
    low = jnp.min(ratings, where=played, initial=drawn_with) - _FURTHEST
    high = jnp.max(ratings, where=played, initial=drawn_with) + _FURTHEST

    def halve(_: int, interval: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = interval
        middle = (low + high) / 2
        is_higher = excess(middle) > 0
        return jnp.where(is_higher, middle, low), jnp.where(is_higher, high, middle)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (low, high))
    return (low + high) / 2
