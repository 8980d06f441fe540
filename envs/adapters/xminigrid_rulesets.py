"""Rulesets of XLand-MiniGrid, from local files of its benchmarks or generated."""

from __future__ import annotations

import bz2
import dataclasses
import functools
import os
import pickle
import re
from collections.abc import Callable
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
FORM = (
    "'FILE:INDEX', or 'NAME:INDEX' of a benchmark that is there, or "
    f"'{PREFIX}KIND:INDEX'; without INDEX, or with FIRST-LAST, each episode samples one"
)
_FORM = re.compile(r"(.+?)(?::(\d+)(?:-(\d+))?)?")
_PARTS = ("goals", "rules", "init_tiles")


def generate(where: str, kind: str) -> dict[str, np.ndarray]:
    """The same `COUNT` rulesets at each call, without production rules, with `OBJECTS` different objects.

    Args:
      where: the beginning of errors; ValueError if there is no such kind.
      kind: of the goal, which the agent does not see: "near", to walk to a cell beside one of the objects;
        "hold", to pick one up; "place", to put one of two objects beside the other; or "mixed", any of these.
        "hold-6" has objects of 6 looks, from 3 to 60, in all rulesets; without a number 60. With "-ranked"
        at its end, looks have an order: the goal is about the first of a ruleset's objects with a probability
        of 1/2, about the second with 1/3 and about the third with 1/6; else with 1/3 each.

    Returns:
      `goals` uint8[COUNT, 5], `rules` uint8[COUNT, 1, 7], `init_tiles` uint8[COUNT, OBJECTS, 2].
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
    turns = range(len(colours))
    pairs = [(shape, colours[(i + j) % len(colours)]) for j in turns for i, shape in enumerate(shapes)]
    tiles = np.array(pairs[:looks], np.uint8)
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


@dataclasses.dataclass(frozen=True)
class Rulesets:
    """Rulesets of one source, uint8; `is_single` if one was asked for by its index."""

    goals: np.ndarray  # [n, 5]
    rules: np.ndarray  # [n, R, 7]
    init_tiles: np.ndarray  # [n, K, 2], (tile, colour) of each object
    is_single: bool


def read(label: str, given: Any) -> Rulesets:
    """The rulesets that a name asks for; ValueError, one line, if there are none. Nothing is downloaded.

    Args:
      label: the environment, for errors.
      given: `SOURCE`, `SOURCE:INDEX` or `SOURCE:FIRST-LAST`, both included. The source is a file, the name of
        a benchmark that the suite has downloaded, or `objects:KIND` (`generate`).
    """
    where = f"{label}: ruleset (={given!r})"
    matched = _FORM.fullmatch(given) if isinstance(given, str) else None
    if matched is None:
        raise ValueError(f"{where} must be {FORM}")
    place, first, last = matched.groups()
    begin = int(first or 0)
    end = None if first is None else int(last or first) + 1
    if end is not None and end <= begin:
        raise ValueError(f"{where}: the last index must not be below the first")
    is_single = first is not None and last is None
    if place.startswith(PREFIX):
        made = generate(where, place.removeprefix(PREFIX))
        return _rows(where, place, made, begin, end, is_single)
    benchmarks = load("xminigrid.benchmarks", "xminigrid")
    file = place
    if place in benchmarks.NAME2HFFILENAME:
        file = os.path.join(benchmarks.DATA_PATH, benchmarks.NAME2HFFILENAME[place])
        if not os.path.isfile(file):
            raise ValueError(
                f"{where}: {file} is not there; xminigrid.load_benchmark({place!r}) downloads it"
            )
    elif not os.path.isfile(file):
        names = ", ".join(benchmarks.NAME2HFFILENAME)
        raise ValueError(f"{where}: {file} is no file, and no benchmark of the suite ({names})")
    try:
        stamp = os.stat(file)
        arrays = _content(os.path.abspath(file), stamp.st_mtime_ns)
    except Exception as error:  # whatever a file that is none makes of its reader
        raise ValueError(f"{where}: {file} is no benchmark: {' '.join(str(error).split())}") from error
    return _rows(where, file, dict(arrays), begin, end, is_single)


def _rows(
    where: str, source: str, arrays: dict[str, np.ndarray], begin: int, end: int | None, is_single: bool
) -> Rulesets:
    count = len(arrays["goals"])
    if max(begin, (end or 1) - 1) >= count:
        raise ValueError(f"{where}: {source} has {count} rulesets, from 0 on")
    return Rulesets(**{name: x[begin:end] for name, x in arrays.items()}, is_single=is_single)


@functools.lru_cache(maxsize=1)
def _content(file: str, stamp: int) -> tuple[tuple[str, np.ndarray], ...]:
    """The arrays of a file, which takes seconds to read with a million; `stamp` tells versions apart."""
    with bz2.open(file, "rb") as stream:
        found = _ArrayReader(stream).load()
    return tuple((name, np.asarray(found[name])) for name in _PARTS)


def _array(function: Callable[..., np.ndarray], arguments: Any, state: Any, _: Any) -> np.ndarray:
    """An array that jax has pickled, as numpy's: on no device."""
    found = function(*arguments)
    found.__setstate__(state)
    return found


_ALLOWED: dict[str, Any] = {
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    "multiarray._reconstruct": np.zeros(1).__reduce__()[0],
    "numeric._frombuffer": np.zeros(1).__reduce_ex__(5)[0],
    "jax._src.array._reconstruct_array": _array,
}


class _ArrayReader(pickle.Unpickler):
    """Reads plain values and arrays of numpy and jax: a pickle of anything else could run any code."""

    def find_class(self, module: str, name: str) -> Any:
        # Packages of numpy have had an underscore since its second version.
        short = module.removeprefix("numpy.core.").removeprefix("numpy._core.")
        if (found := _ALLOWED.get(f"{short}.{name}")) is None:
            raise ValueError(f"it holds {module}.{name}, which is no array")
        return found
