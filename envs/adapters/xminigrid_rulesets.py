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

import numpy as np

from jaxrl.envs.adapters import xminigrid_objects
from jaxrl.envs.adapters.suite import load

FORM = (
    "'FILE:INDEX', or 'NAME:INDEX' of a benchmark that is there, or "
    f"'{xminigrid_objects.PREFIX}KIND:INDEX'; without INDEX, or with FIRST-LAST, each episode samples one"
)
_FORM = re.compile(r"(.+?)(?::(\d+)(?:-(\d+))?)?")
_PARTS = ("goals", "rules", "init_tiles")


@dataclasses.dataclass(frozen=True)
class Rulesets:
    """Rulesets of one source, uint8.

    Attributes:
      goals: [n, 5].
      rules: [n, R, 7].
      init_tiles: [n, K, 2], (tile, colour) of each object.
      is_single: one was asked for by its index.
    """

    goals: np.ndarray
    rules: np.ndarray
    init_tiles: np.ndarray
    is_single: bool


def read(label: str, given: Any) -> Rulesets:
    """The rulesets that a name asks for. Nothing is downloaded.

    Args:
      label: the environment, for errors.
      given: `SOURCE`, `SOURCE:INDEX` or `SOURCE:FIRST-LAST`, both included. The source is a file, the name of
        a benchmark that the suite has downloaded, or `objects:KIND` (`xminigrid_objects`).

    Raises:
      ValueError: one line; there is no such source, it is no benchmark, or it has no such ruleset.
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
    if place.startswith(xminigrid_objects.PREFIX):
        made = xminigrid_objects.generate(where, place.removeprefix(xminigrid_objects.PREFIX))
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
