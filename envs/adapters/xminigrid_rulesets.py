"""Rulesets of XLand-MiniGrid's benchmarks, from local files."""

from __future__ import annotations

import bz2
import functools
import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxrl.envs.adapters.suite import load

FORM = "'FILE:INDEX', or 'NAME:INDEX' of a benchmark that is there"
_PARTS = ("goals", "rules", "init_tiles")


def read(label: str, given: Any) -> dict[str, np.ndarray]:
    """The arrays of one ruleset: its goal, its rules and its first tiles.

    Nothing is downloaded.

    Args:
      label: the environment, for errors.
      given: `FILE:INDEX`, or `NAME:INDEX` of a benchmark that the suite has downloaded.

    Raises:
      ValueError: one line; there is no such file, it is no benchmark, or it has no such ruleset.
    """
    where = f"{label}: ruleset (={given!r})"
    place, _, index = given.rpartition(":") if isinstance(given, str) else ("", "", "")
    if not place or not index.isdecimal():
        raise ValueError(f"{where} must be {FORM}")
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
        return dict(_ruleset(os.path.abspath(file), stamp.st_mtime_ns, int(index)))
    except IndexError as error:
        raise ValueError(f"{where}: {file} has {error} rulesets, from 0 on") from error
    except Exception as error:  # whatever a file that is none makes of its reader
        raise ValueError(f"{where}: {file} is no benchmark: {' '.join(str(error).split())}") from error


@functools.lru_cache(maxsize=64)
def _ruleset(file: str, stamp: int, index: int) -> tuple[tuple[str, np.ndarray], ...]:
    """One of a file, which takes seconds to read where it has a million; `stamp` tells versions apart."""
    with bz2.open(file, "rb") as stream:
        found = _ArrayReader(stream).load()
    arrays = {name: np.asarray(found[name]) for name in _PARTS}
    if index >= (count := len(arrays["goals"])):
        raise IndexError(count)
    return tuple((name, np.array(x[index])) for name, x in arrays.items())


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
