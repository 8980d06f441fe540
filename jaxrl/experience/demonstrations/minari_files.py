"""Local Minari data sets, the format of Farama's offline data: read, and written, with the extra `minari`.

Only arrays and spaces are taken. The environment that a data set names is never made: its specification may
name any code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, Mixed, MultiDiscrete, Space
from jaxrl.envs.bounded_files import read_object
from jaxrl.envs.spaces import bounds
from jaxrl.experience.demonstrations.episode import Episode, EpisodeFault, check_episode

_INSTALL = "needs the package minari: pip install 'jaxrl-recurrent[minari]'"
_METADATA = "metadata.json"


def data_folder(folder: Path) -> Path | None:
    """The folder `data` of a Minari data set, named itself or by the one above; None if it is none."""
    return next((x for x in (folder / "data", folder) if (x / _METADATA).is_file()), None)


def read_episodes(place: Path, spec: EnvSpec) -> Iterator[Episode]:
    """The episodes of a data set, checked against the environment's spaces.

    Raises:
      EpisodeFault: it cannot be read, or an episode is not of this environment; the message names which.
    """
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


def write_episodes(place: Path, episodes: Iterable[Episode], spec: EnvSpec, name: str) -> None:
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
    version = _minari("minari").__version__
    storage.update_metadata(
        {"dataset_id": _data_set_id(name), "minari_version": version, "algorithm_name": "jaxrl"}
    )


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
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EpisodeFault(f"a Minari data set {_INSTALL}") from error


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
    missing = [name for name, _ in space.spaces if name not in arrays]
    if missing:
        raise EpisodeFault(f"actions have no part {missing[0]!r}")
    parts = [arrays[name] for name, _ in space.spaces]
    return np.concatenate([x.reshape(len(x), -1) for x in parts], axis=1).astype(space.dtype)


def _data_set_id(name: str) -> str:
    """An id as Minari wants it, of letters, digits and `_-`, with a version at its end."""
    plain = re.sub(r"[^\w-]", "-", name) or "episodes"
    return plain if re.search(r"\w-v\d+$", plain) else f"{plain}-v0"


def _gymnasium(space: Space) -> Any:
    import gymnasium

    spaces: Any = gymnasium.spaces
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n, start=space.start)
    if isinstance(space, MultiDiscrete):
        return spaces.MultiDiscrete(np.array(space.nvec), start=bounds(space)[0].astype(np.int64))
    if isinstance(space, Box):
        low, high = (np.array(x, space.dtype).reshape(space.shape) for x in (space.low, space.high))
        return spaces.Box(low, high, space.shape, space.dtype)
    return _gymnasium_parts(_nested(dict(_named_spaces(space))))


def _named_spaces(space: Space, name: str = "") -> Iterator[tuple[str, Space]]:
    if not isinstance(space, Dict | Mixed):
        yield name, space
        return
    for key, part in space.spaces:
        yield from _named_spaces(part, f"{name}.{key}" if name else key)


def _gymnasium_parts(tree: Any) -> Any:
    import gymnasium

    if isinstance(tree, dict):
        return gymnasium.spaces.Dict({key: _gymnasium_parts(part) for key, part in tree.items()})
    if isinstance(tree, tuple):
        return gymnasium.spaces.Tuple([_gymnasium_parts(part) for part in tree])
    return _gymnasium(tree)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
