"""Elo ratings of players from the games that they played (Elo 1978)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxrl.types import Array

# A player who is rated so much higher scores ten times as much as the other.
SCALE = 400.0
# Further from all opponents no number of games can tell.
_FURTHEST = 1_200.0
_HALVINGS = 24  # of an interval of thousands, to less than a thousandth


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
