"""Files of other programs: D4RL's layout of HDF5, read, and local Minari data sets, read and written.

D4RL's (Fu et al. 2020) holds the rows of all episodes, one after the other, in arrays of N rows each:
`observations`, `actions`, `rewards`, `terminals` and `timeouts`; an episode ends where one of the last two is
1. Observations that are dicts are groups. `next_observations` may be there; anything else is not read.

Of Minari's, the format of Farama's offline data, only arrays and spaces are taken. The environment that a
data set names is never made: its specification may name any code.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.config.errors import errors_as
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, Mixed, MultiDiscrete, Space
from jaxrl.envs.bounded_files import open_regular, read_object
from jaxrl.envs.spaces import bounds
from jaxrl.experience.demonstrations.episode import (
    Episode,
    EpisodeFault,
    check_episode,
    observations_of,
    require_numbers,
)

D4RL_SUFFIXES = (".hdf5", ".h5")
_FLAGS = ("terminals", "timeouts")
_REQUIRED = ("actions", "rewards", *_FLAGS)
_NEXT = "next_"
_OBSERVATIONS = ("observations", f"{_NEXT}observations")
_LARGEST = 8 * 2**30  # bytes of all arrays
_METADATA = "metadata.json"


def read_d4rl(file: Path, spec: EnvSpec) -> Iterator[Episode]:
    """The episodes of a file, checked against the environment's spaces.

    The last one may be cut off. What followed the last action of an episode is in `next_observations`;
    without these its last observation stands there once more, which no policy is cloned from.

    Raises:
      EpisodeFault: it cannot be read, or an episode is not of this environment; the message names which.
    """
    arrays = _read_arrays(file)
    for name in _REQUIRED:
        if name not in arrays:
            raise EpisodeFault(f"has no array {name}: D4RL's are observations, {', '.join(_REQUIRED)}")
    now = observations_of(arrays, spec.observation_space)
    following = {name.removeprefix(_NEXT): x for name, x in arrays.items() if name.startswith(_NEXT)}
    after = observations_of(following, spec.observation_space) if following else now
    _check_rows(arrays)
    rewards, terminals, timeouts = (_column(name, arrays[name]) for name in ("rewards", *_FLAGS))
    ends = np.flatnonzero(terminals.astype(bool) | timeouts.astype(bool)) + 1
    starts = np.concatenate([[0], ends[ends < len(rewards)]])
    for number, (start, stop) in enumerate(zip(starts, [*starts[1:], len(rewards)], strict=True)):
        rows = slice(start, stop)
        with_last = lambda x, y, r=rows: np.concatenate([x[r], y[r][-1:]])  # noqa: E731
        episode = Episode(
            observations=jax.tree.map(with_last, now, after),
            actions=arrays["actions"][rows],
            rewards=rewards[rows].astype(np.float32),
            terminations=terminals[rows].astype(bool),
            truncations=timeouts[rows].astype(bool),
            player="d4rl",
        )
        with errors_as(EpisodeFault, f"episode {number}, from row {start} on", EpisodeFault):
            check_episode(episode, spec)
        yield episode


def _read_arrays(file: Path) -> dict[str, np.ndarray]:
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
            require_numbers(name, entry.dtype)
            if entry.external or entry.is_virtual:
                raise EpisodeFault(f"{name} lies in another file, which is not read")
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


def minari_folder(folder: Path) -> Path | None:
    """The folder `data` of a Minari data set, named itself or by the one above; None if it is none."""
    return next((x for x in (folder / "data", folder) if (x / _METADATA).is_file()), None)


def read_minari(place: Path, spec: EnvSpec) -> Iterator[Episode]:
    """The episodes of a data set, checked as `read_d4rl` does; EpisodeFault likewise."""
    storage = _open(place)
    for number in range(int(storage.total_episodes)):
        try:
            (found,) = storage.get_episodes([number])
            episode = Episode(
                observations=_observations(dict(_named(found["observations"])), spec.observation_space),
                actions=_actions(dict(_named(found["actions"])), spec.action_space),
                rewards=np.asarray(found["rewards"], np.float32),
                terminations=np.asarray(found["terminations"], bool),
                truncations=np.asarray(found["truncations"], bool),
                player="minari",
            )
            check_episode(episode, spec)
        except EpisodeFault as error:
            raise EpisodeFault(f"episode {number}: {error}") from error
        except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
            raise EpisodeFault(f"episode {number}: cannot be read ({_line(error)})") from error
        yield episode


def write_minari(place: Path, episodes: Iterable[Episode], spec: EnvSpec, name: str) -> None:
    """Writes a data set into the new folder `place`, whose name must be `data` for Minari to find it.

    Raises:
      EpisodeFault: the package is missing, or Gymnasium has no such space.
      OSError: it cannot be written.
    """
    buffers = _minari("minari.data_collector.episode_buffer").EpisodeBuffer
    storage_type = _minari("minari.dataset.minari_storage").MinariStorage
    place.mkdir(parents=True)
    space = spec.action_space
    storage = storage_type.new(
        place, _gymnasium(spec.observation_space), _gymnasium(space), jpeg_encoding=False
    )
    for number, episode in enumerate(episodes):
        buffer = buffers(
            id=number,
            seed=episode.seed if episode.seed >= 0 else None,
            observations=_nested(dict(_named(episode.observations))),
            actions=_nested(space.parts(episode.actions)) if isinstance(space, Mixed) else episode.actions,
            rewards=list(episode.rewards),
            terminations=list(episode.terminations),
            truncations=list(episode.truncations),
            # Minari's begin with the reset's.
            infos={key: np.concatenate([[np.nan], x]) for key, x in episode.infos.items()},
        )
        storage.update_episodes([buffer])
    # As Minari wants it, of letters, digits and `_-`, with a version at its end.
    plain = re.sub(r"[^\w-]", "-", name) or "episodes"
    data_set = plain if re.search(r"\w-v\d+$", plain) else f"{plain}-v0"
    version = _minari("minari").__version__
    storage.update_metadata({"dataset_id": data_set, "minari_version": version, "algorithm_name": "jaxrl"})


def _open(place: Path) -> Any:
    storage_type = _minari("minari.dataset.minari_storage").MinariStorage
    try:
        metadata = read_object(place / _METADATA)
    except (OSError, ValueError) as error:
        raise EpisodeFault(f"{_METADATA}: cannot be read ({_line(error)})") from error
    if not {"observation_space", "action_space"} <= metadata.keys():
        # Minari would make the environment to ask it.
        raise EpisodeFault(f"{_METADATA}: names no spaces")
    try:
        return storage_type.read(place)
    except Exception as error:  # whatever a reader of HDF5 makes of any file
        raise EpisodeFault(f"cannot be read ({_line(error)})") from error


def _minari(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EpisodeFault(
            "a Minari data set needs the package minari: pip install 'jaxrl-recurrent[minari]'"
        ) from error


def _named(tree: Any, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of dicts and tuples by the names that parts of spaces have, `outer.inner` and `pair.0`."""
    if not isinstance(tree, dict | tuple):
        yield name, np.asarray(tree)
        return
    for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield from _named(part, f"{name}.{key}" if name else str(key))


def _nested(parts: Mapping[str, Any]) -> Any:
    """Inverse of `_named`; EpisodeFault if an array has parts, too."""
    if parts.keys() == {""}:
        return parts[""]
    if "" in parts:
        raise EpisodeFault("Minari has no space in which a part both is an array and has parts")
    inside: dict[str, dict[str, Any]] = {}
    for name, x in parts.items():
        key, _, rest = name.partition(".")
        inside.setdefault(key, {})[rest] = x
    found = {key: _nested(x) for key, x in inside.items()}
    places = [str(i) for i in range(len(found))]
    return tuple(found[place] for place in places) if found.keys() == {*places} else found


def _observations(arrays: Mapping[str, np.ndarray], space: Space, name: str = "") -> Any:
    """Arrays of a space; a part that is missing is an EpisodeFault."""
    if isinstance(space, Dict):
        inner = f"{name}." if name else ""
        return {key: _observations(arrays, part, f"{inner}{key}") for key, part in space.spaces}
    if name not in arrays:
        raise EpisodeFault(f"observations have no part {name!r}" if name else "observations have parts")
    return arrays[name]


def _actions(arrays: Mapping[str, np.ndarray], space: Space) -> np.ndarray:
    """Actions [T, *A] of a space; several parts become one vector."""
    if not isinstance(space, Mixed):
        if "" not in arrays:
            raise EpisodeFault(f"actions have the parts {', '.join(arrays)}; the environment's have none")
        return arrays[""]
    parts = []
    for name, _ in space.spaces:
        if name not in arrays:
            raise EpisodeFault(f"actions have no part {name!r}")
        parts.append(arrays[name].reshape(len(arrays[name]), -1))
    return np.concatenate(parts, axis=1).astype(space.dtype)


def _gymnasium(space: Any) -> Any:
    """The space as Gymnasium has it; of a dict or tuple of spaces, too."""
    import gymnasium

    spaces: Any = gymnasium.spaces
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n, start=space.start)
    if isinstance(space, MultiDiscrete):
        return spaces.MultiDiscrete(np.array(space.nvec), start=bounds(space)[0].astype(np.int64))
    if isinstance(space, Box):
        low, high = (np.array(x, space.dtype).reshape(space.shape) for x in (space.low, space.high))
        return spaces.Box(low, high, space.shape, space.dtype)
    if isinstance(space, dict):
        return spaces.Dict({key: _gymnasium(part) for key, part in space.items()})
    if isinstance(space, tuple):
        return spaces.Tuple([_gymnasium(part) for part in space])
    return _gymnasium(_nested(dict(_named_spaces(space))))


def _named_spaces(space: Space, name: str = "") -> Iterator[tuple[str, Space]]:
    if not isinstance(space, Dict | Mixed):
        yield name, space
        return
    for key, part in space.spaces:
        yield from _named_spaces(part, f"{name}.{key}" if name else key)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
