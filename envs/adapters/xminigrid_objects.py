"""Rulesets of XLand-MiniGrid generated from the suite's own goals: find out which object is rewarded."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.adapters.suite import load, suite_rules

PREFIX = "objects:"
COUNT = 4096  # rulesets
OBJECTS = 3  # in each
# Of `xminigrid.core.constants`. A black object would look like the floor's colour.
_SHAPES = ("BALL", "SQUARE", "PYRAMID", "KEY", "HEX", "STAR")
_COLOURS = ("RED", "GREEN", "BLUE", "PURPLE", "YELLOW", "GREY", "ORANGE", "WHITE", "BROWN", "PINK")
_KINDS = {"near": "AgentNearGoal", "hold": "AgentHoldGoal", "place": "TileNearGoal"}
_RANKED = "-ranked"
_SHARES = (1 / 2, 1 / 3, 1 / 6)
_SEED = 0


def generate(where: str, kind: str) -> dict[str, np.ndarray]:
    """The same `COUNT` rulesets at each call, without production rules, with `OBJECTS` different objects.

    Args:
      where: the beginning of errors.
      kind: of the goal, which the agent does not see: "near", to walk to a cell beside one of the objects;
        "hold", to pick one up; "place", to put one of two objects beside the other; or "mixed", any of these.
        "hold-6" has objects of 6 looks, from 3 to 60, in all rulesets; without a number 60. With "-ranked"
        at its end, looks have an order: the goal is about the first of a ruleset's objects with a probability
        of 1/2, about the second with 1/3 and about the third with 1/6; else with 1/3 each.

    Returns:
      `goals` uint8[COUNT, 5], `rules` uint8[COUNT, 1, 7], `init_tiles` uint8[COUNT, OBJECTS, 2].

    Raises:
      ValueError: there is no such kind.
    """
    plain = kind.removesuffix(_RANKED)
    name, _, looks = plain.partition("-")
    most = len(_SHAPES) * len(_COLOURS)
    if name not in (*_KINDS, "mixed"):
        raise ValueError(f"{where}: KIND (={kind!r}) of {PREFIX}KIND must be {', '.join(_KINDS)} or mixed")
    if "-" in plain and not (looks.isdecimal() and OBJECTS <= int(looks) <= most):
        raise ValueError(f"{where}: KIND (={kind!r}): objects must have {OBJECTS} to {most} looks")
    return dict(_generated(name, int(looks or most), plain != kind))


@functools.lru_cache(maxsize=8)
def _generated(kind: str, looks: int, is_ranked: bool) -> tuple[tuple[str, np.ndarray], ...]:
    constants, goals, rules = (
        load(f"xminigrid.core.{x}", "xminigrid") for x in ("constants", "goals", "rules")
    )
    shapes = [getattr(constants.Tiles, shape) for shape in _SHAPES]
    colours = [getattr(constants.Colors, colour) for colour in _COLOURS]
    # The first looks differ in both.
    tiles = np.array(
        [
            (shape, colours[(i + j) % len(colours)])
            for j in range(len(colours))
            for i, shape in enumerate(shapes)
        ],
        np.uint8,
    )[:looks]
    rng = np.random.default_rng(_SEED)
    chosen = rng.permuted(np.tile(np.arange(len(tiles)), (COUNT, 1)), axis=1)[:, :OBJECTS]
    if is_ranked:
        first = rng.choice(OBJECTS, size=COUNT, p=_SHARES)
        order = (first[:, None] + np.arange(OBJECTS)) % OBJECTS
        chosen = np.take_along_axis(np.sort(chosen, axis=1), order, axis=1)
    # The goal is about the first. Objects are put on random cells, so that their order tells nothing.
    init_tiles = tiles[chosen]
    kinds = list(_KINDS) if kind == "mixed" else [kind]

    def encode(name: str) -> Any:
        goal = getattr(goals, _KINDS[name])
        if name == "place":
            return jax.vmap(lambda x: goal(tile_a=x[0], tile_b=x[1]).encode())(jnp.asarray(init_tiles))
        return jax.vmap(lambda x: goal(tile=x[0]).encode())(jnp.asarray(init_tiles))

    with suite_rules():
        encoded = np.stack([np.asarray(encode(name), np.uint8) for name in kinds])
        rule = np.asarray(rules.EmptyRule().encode(), np.uint8)
    which = rng.integers(len(kinds), size=COUNT)
    return (
        ("goals", encoded[which, np.arange(COUNT)]),
        ("rules", np.tile(rule, (COUNT, 1, 1))),
        ("init_tiles", init_tiles),
    )
