"""Replays: the actions of episodes without observations; `.npz` files and lines of `jaxrl play --record`.

Of an `.npz`: `actions` [T, *A]; `level_id`, a level's digest or its number, if the environment has levels;
`seed`, if episodes follow from one; `success`, `player`, `version`; `observations`, which are compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from jaxrl.envs.bounded_files import read_bytes
from jaxrl.envs.native.platformer.game.record import RecordError, read_records
from jaxrl.experience.demonstrations.dataset import PICKLES, DatasetFault
from jaxrl.experience.demonstrations.episode import (
    LARGEST_FILE,
    EpisodeFault,
    facts_of,
    read_arrays,
    text_of,
    whole_number,
)

_LINES = (".jsonl", ".json", ".txt")
_CONVERT = (
    "pickled files can run any code and are not read; convert them where you trust them: "
    "np.savez(FILE, level_id=..., actions=..., success=..., player=...)"
)


@dataclasses.dataclass(frozen=True)
class ActionReplay:
    """The actions of one episode.

    Attributes:
      source: the file, and of several in it which, for people.
      actions: [T, *A], as the environment took them.
      level: a digest, or the number of a level; "" if the environment has none.
      seed: -1 if it is not known.
      success: True if it reports success; None if it reports nothing on it.
      player, version: who acted, and with which version of the game; "" if not known.
      observations: by the names of episodes' files, to compare; empty if they were not kept.
    """

    source: str
    actions: np.ndarray
    level: str = ""
    seed: int = -1
    success: bool | None = None
    player: str = ""
    version: str = ""
    observations: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


def read_replays(place: Path, refuse: Callable[[str, str], None]) -> Iterator[ActionReplay]:
    """Reads a folder of replays, or one file.

    Args:
      place: a folder with `.npz` and `.jsonl` files, or such a file; of another name it is one of lines.
      refuse: called with (source, reason) for each file that cannot be read.

    Raises:
      DatasetFault: there is nothing there, or nothing but pickled files.
    """
    if place.suffix in PICKLES:
        raise DatasetFault(f"{place}: {_CONVERT}")
    if not place.exists():
        raise DatasetFault(f"{place}: is not there")
    if not place.is_dir():
        yield from _read_file(place, refuse)
        return
    there = [file for file in sorted(place.iterdir()) if file.is_file()]
    files = [file for file in there if file.suffix in (".npz", *_LINES) and file.name != "manifest.json"]
    pickles = [file for file in there if file.suffix in PICKLES]
    if not files:
        if pickles:
            raise DatasetFault(f"{pickles[0]}: {_CONVERT}")
        raise DatasetFault(f"{place}: holds no replay (*.npz, *.jsonl)")
    for file in pickles:
        refuse(str(file), _CONVERT)
    for file in files:
        yield from _read_file(file, refuse)


def _read_file(file: Path, refuse: Callable[[str, str], None]) -> Iterator[ActionReplay]:
    try:
        found = [_of_arrays(file)] if file.suffix == ".npz" else list(_of_lines(file))
    except (EpisodeFault, RecordError) as error:
        refuse(str(file), str(error))
    except OSError as error:
        refuse(str(file), f"cannot be read: {error.strerror or error}")
    else:
        yield from found


def _of_arrays(file: Path) -> ActionReplay:
    arrays = read_arrays(read_bytes(file, LARGEST_FILE))
    if "actions" not in arrays:
        raise EpisodeFault("has no array actions")
    actions = arrays["actions"]
    if actions.dtype.kind not in "biuf" or actions.ndim < 1 or not len(actions):
        raise EpisodeFault(
            f"actions (of shape {actions.shape}, dtype {actions.dtype}) must be numbers, [T, ...]"
        )
    level = text_of(arrays, "level_id")
    if not level and (given := arrays.get("level_id")) is not None and given.dtype.kind != "U":
        level = str(int(whole_number("level_id", given)))
    return ActionReplay(
        source=str(file),
        actions=actions,
        level=level,
        version=text_of(arrays, "version"),
        observations={name: x for name, x in arrays.items() if name.partition(".")[0] == "observations"},
        **facts_of(arrays),
    )


def _of_lines(file: Path) -> Iterator[ActionReplay]:
    for number, record in enumerate(read_records(file), 1):
        yield ActionReplay(
            source=f"{file} line {number}",
            actions=np.array([int(digit) for digit in record.actions], np.int32),
            level=record.digest,
            success=record.success,
            player="person",
        )
