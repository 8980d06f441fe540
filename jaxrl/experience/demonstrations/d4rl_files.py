"""Files in the layout of D4RL (Fu et al. 2020): the rows of all episodes, one after the other, as HDF5.

Arrays are `observations`, `actions`, `rewards`, `terminals` and `timeouts`, of N rows each; an episode ends
where one of the last two is 1. Observations that are dicts are groups. `next_observations` may be there;
anything else is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.config.errors import errors_as
from jaxrl.envs.base import EnvSpec, Space
from jaxrl.envs.bounded_files import open_regular
from jaxrl.experience.demonstrations.episode import Episode, EpisodeFault, check_episode, observations_of

SUFFIXES = (".hdf5", ".h5")
_FLAGS = ("terminals", "timeouts")
_REQUIRED = ("actions", "rewards", *_FLAGS)
_NEXT = "next_"
_OBSERVATIONS = ("observations", f"{_NEXT}observations")
_LARGEST = 8 * 2**30  # bytes of all arrays


def read_episodes(file: Path, spec: EnvSpec) -> Iterator[Episode]:
    """The episodes of a file, checked against the environment's spaces.

    The last one may be cut off. What followed the last action of an episode is in `next_observations`;
    without these its last observation stands there once more, which no policy is cloned from.

    Raises:
      EpisodeFault: it cannot be read, or an episode is not of this environment; the message names which.
    """
    arrays = _read(file)
    for name in _REQUIRED:
        if name not in arrays:
            raise EpisodeFault(f"has no array {name}: D4RL's are observations, {', '.join(_REQUIRED)}")
    now = observations_of(arrays, spec.observation_space)
    after = _next_observations(arrays, spec.observation_space, now)
    _check_rows(arrays)
    rewards, terminals, timeouts = (_column(name, arrays[name]) for name in ("rewards", *_FLAGS))
    ends = np.flatnonzero(terminals.astype(bool) | timeouts.astype(bool)) + 1
    starts = np.concatenate([[0], ends[ends < len(rewards)]])
    for number, (start, stop) in enumerate(zip(starts, [*starts[1:], len(rewards)], strict=True)):
        rows = slice(start, stop)
        episode = Episode(
            observations=_with_last(now, after, start, stop),
            actions=arrays["actions"][rows],
            rewards=rewards[rows].astype(np.float32),
            terminations=terminals[rows].astype(bool),
            truncations=timeouts[rows].astype(bool),
            player="d4rl",
        )
        with errors_as(EpisodeFault, f"episode {number}, from row {start} on", EpisodeFault):
            check_episode(episode, spec)
        yield episode


def _read(file: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by their names, those in groups as `observations.PART`."""
    try:
        import h5py
    except ImportError as error:
        raise EpisodeFault(
            "an HDF5 file needs the package h5py: pip install 'jaxrl-recurrent[minari]'"
        ) from error
    found = dict[str, Any]()

    def visit(path: str, entry: Any) -> None:
        name = path.replace("/", ".")
        if isinstance(entry, h5py.Dataset) and name.split(".")[0] in (*_REQUIRED, *_OBSERVATIONS):
            _require_numbers(name, entry)
            found[name] = entry

    try:
        with open_regular(file) as stream, h5py.File(stream, "r") as stored:
            stored.visititems(visit)  # follows no link to another file
            if sum(entry.size * entry.dtype.itemsize for entry in found.values()) > _LARGEST:
                raise EpisodeFault(f"unpacks to more than {_LARGEST >> 30} GiB")
            return {name: np.asarray(entry) for name, entry in found.items()}
    except EpisodeFault:
        raise
    except Exception as error:  # whatever a reader of HDF5 makes of any file
        raise EpisodeFault(f"is no HDF5 file, or cut short ({' '.join(str(error).split())})") from error


def _require_numbers(name: str, entry: Any) -> None:
    if entry.dtype.kind not in "biuf":
        raise EpisodeFault(f"{name} (of dtype {entry.dtype}) must hold numbers")
    if entry.external or entry.is_virtual:
        raise EpisodeFault(f"{name} lies in another file, which is not read")


def _column(name: str, x: np.ndarray) -> np.ndarray:
    """[N] of [N] or, as some files have it, [N, 1]; flags are 0 or 1."""
    column = x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x
    if column.ndim != 1:
        raise EpisodeFault(f"{name} (of shape {x.shape}) must have one number a row")
    if name in _FLAGS and not np.isin(column, (0, 1)).all():
        raise EpisodeFault(f"{name} must hold 0 and 1")
    return column


def _check_rows(arrays: dict[str, np.ndarray]) -> None:
    rows = arrays["actions"].shape[:1]
    if rows == (0,):
        raise EpisodeFault("holds no episode")
    for name, x in arrays.items():
        if x.shape[:1] != rows or not rows:
            raise EpisodeFault(f"{name} (of shape {x.shape}) must have as many rows as actions")
        now = arrays.get(name.removeprefix(_NEXT), x)
        if x.shape != now.shape:
            raise EpisodeFault(f"{name} (of shape {x.shape}) must have the shape {now.shape} of observations")


def _next_observations(arrays: dict[str, np.ndarray], space: Space, now: Any) -> Any:
    """The observation after each row; `now` if the file does not say."""
    given = {name.removeprefix(_NEXT): x for name, x in arrays.items() if name.startswith(_NEXT)}
    return observations_of(given, space) if given else now


def _with_last(now: Any, after: Any, start: int, stop: int) -> Any:
    """Observations of the rows, and what followed the last of them."""
    if isinstance(now, dict):
        return {name: _with_last(now[name], after[name], start, stop) for name in now}
    return np.concatenate([now[start:stop], after[stop - 1 : stop]])
