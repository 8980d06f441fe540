"""Local Minari data sets, the format of Farama's offline data: read, and written, with the extra `minari`.

Only arrays and spaces are taken. The environment that a data set names is never made: its specification may
name any code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, MultiDiscrete, Space
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

    Args:
      place: of `data_folder`.
      spec: of the environment.

    Raises:
      EpisodeFault: it cannot be read, or an episode is not of this environment; the message names which.
    """
    storage = _open(place)
    for number in range(int(storage.total_episodes)):
        try:
            (found,) = storage.get_episodes([number])
            episode = Episode(
                observations=_of_space(found["observations"], spec.observation_space),
                actions=np.asarray(found["actions"]),
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

    Args:
      place: is made, with those above it.
      episodes: to write.
      spec: of their environment.
      name: of the data set.

    Raises:
      EpisodeFault: the package is missing, or Gymnasium has no such space.
      OSError: it cannot be written.
    """
    buffers = _minari("minari.data_collector.episode_buffer").EpisodeBuffer
    storage_type = _minari("minari.dataset.minari_storage").MinariStorage
    place.mkdir(parents=True)
    storage = storage_type.new(
        place, _gymnasium(spec.observation_space), _gymnasium(spec.action_space), jpeg_encoding=False
    )
    for number, episode in enumerate(episodes):
        buffer = buffers(
            id=number,
            seed=episode.seed if episode.seed >= 0 else None,
            observations=episode.observations,
            actions=episode.actions,
            rewards=list(episode.rewards),
            terminations=list(episode.terminations),
            truncations=list(episode.truncations),
            # Theirs begin with what a reset tells.
            infos={key: np.concatenate([[np.nan], x]) for key, x in episode.infos.items()},
        )
        storage.update_episodes([buffer])
    version = _minari("minari").__version__
    storage.update_metadata({"dataset_id": name, "minari_version": version, "algorithm_name": "jaxrl"})


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


def _of_space(tree: Any, space: Space) -> Any:
    """Arrays of a space; a part that is missing is an EpisodeFault."""
    if not isinstance(space, Dict):
        return np.asarray(tree)
    missing = [name for name, _ in space.spaces if not isinstance(tree, dict) or name not in tree]
    if missing:
        raise EpisodeFault(f"observations have no part {missing[0]!r}")
    return {name: _of_space(tree[name], part) for name, part in space.spaces}


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
    if isinstance(space, Dict):
        return spaces.Dict({name: _gymnasium(part) for name, part in space.spaces})
    raise EpisodeFault(f"Minari has no space for {type(space).__name__} actions")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
