"""Files of one episode each, `.npz`: read bounded, and without unpickling anything.

Arrays: `observations` [T + 1, *O], or `observations.PART` for each part of a dict; `actions` [T, *A];
`rewards`, `terminations`, `truncations` [T]; `action_masks` [T, A] if there are masks; `infos.NAME` [T],
which the environment reported. Scalars: `seed`, `success` (absent if unknown), `player` and `level_id`
(text). Everything else in a file is ignored.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.envs.base import EnvSpec
from jaxrl.envs.bounded_files import read_bytes
from jaxrl.experience.demonstrations.episode import (
    Episode,
    EpisodeFault,
    check_episode,
    named_observations,
    observations_of,
)

LARGEST_FILE = 2**30  # bytes, of one episode, also once its arrays are unpacked
_MOST_ARRAYS = 1_000
_LONGEST_TEXT = 200  # characters
_INFO = "infos."


def encode(episode: Episode) -> bytes:
    """The content of an episode's file; the same for the same episode."""
    arrays: dict[str, Any] = dict(named_observations(episode.observations))
    for name in ("actions", "rewards", "terminations", "truncations", "action_masks"):
        if getattr(episode, name) is not None:
            arrays[name] = getattr(episode, name)
    arrays |= {f"{_INFO}{name}": x for name, x in episode.infos.items()}
    arrays |= {"seed": np.int64(episode.seed), "player": np.str_(episode.player[:_LONGEST_TEXT])}
    if episode.level:
        arrays["level_id"] = np.str_(episode.level[:_LONGEST_TEXT])
    if episode.success is not None:
        arrays["success"] = np.bool_(episode.success)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays):
            part = io.BytesIO()
            np.lib.format.write_array(part, np.asarray(arrays[name]), allow_pickle=False)
            # The date of writing would change the file's digest.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), part.getvalue())
    return stream.getvalue()


def read_episode(file: Path, spec: EnvSpec) -> Episode:
    """Reads an episode; EpisodeFault if it is no episode of this environment, or damaged."""
    try:
        content = read_bytes(file, LARGEST_FILE)
    except OSError as error:
        raise EpisodeFault(f"cannot be read: {error.strerror or error}") from error
    return decode(content, spec)


def decode(content: bytes, spec: EnvSpec) -> Episode:
    """Inverse of `encode`, checked; raises EpisodeFault as `read_episode`."""
    arrays = read_arrays(content)
    for name in ("actions", "rewards", "terminations", "truncations"):
        if name not in arrays:
            raise EpisodeFault(f"has no array {name}")
    success = arrays.get("success")
    episode = Episode(
        observations=observations_of(arrays, spec.observation_space),
        actions=arrays["actions"],
        rewards=_numbers("rewards", arrays["rewards"], np.float32),
        terminations=_numbers("terminations", arrays["terminations"], bool),
        truncations=_numbers("truncations", arrays["truncations"], bool),
        action_masks=_numbers("action_masks", arrays["action_masks"], bool)
        if "action_masks" in arrays
        else None,
        infos={
            name.removeprefix(_INFO): _numbers(name, x, np.float32)
            for name, x in arrays.items()
            if name.startswith(_INFO)
        },
        seed=int(whole_number("seed", arrays.get("seed", np.int64(-1)))),
        success=None if success is None else bool(whole_number("success", success)),
        player=text_of(arrays, "player"),
        level=text_of(arrays, "level_id"),
    )
    check_episode(episode, spec)
    return episode


def text_of(arrays: dict[str, np.ndarray], name: str) -> str:
    """The text that an array is, or ""."""
    x = arrays.get(name, np.str_(""))
    return str(x)[:_LONGEST_TEXT] if x.dtype.kind == "U" and x.ndim == 0 else ""


def read_arrays(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of a `.npz` by name; raises EpisodeFault if it is none, or too large."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            if len(entries) > _MOST_ARRAYS or size > LARGEST_FILE:
                raise EpisodeFault(f"unpacks to more than {LARGEST_FILE >> 20} MiB or {_MOST_ARRAYS} arrays")
            found = {}
            for entry in entries:
                with archive.open(entry) as stream:
                    # A header may promise more than the file has: nothing larger is read than it says.
                    part = io.BytesIO(stream.read(entry.file_size))
                found[entry.filename.removesuffix(".npy")] = np.lib.format.read_array(
                    part, allow_pickle=False, max_header_size=10_000
                )
            return found
    except EpisodeFault:
        raise
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise EpisodeFault(f"is no .npz of arrays, or cut short ({' '.join(str(error).split())})") from error
    except (MemoryError, zipfile.LargeZipFile, Exception) as error:  # zlib.error, OverflowError, ...
        raise EpisodeFault(f"is no .npz of arrays ({type(error).__name__})") from error


def _numbers(name: str, x: np.ndarray, dtype: Any) -> np.ndarray:
    if x.dtype.kind not in "biuf":
        raise EpisodeFault(f"{name} (of dtype {x.dtype}) must hold numbers")
    return x.astype(dtype)


def whole_number(name: str, x: Any) -> Any:
    """The array if it is one whole number or bool, else EpisodeFault."""
    if x.shape != () or x.dtype.kind not in "biu":
        raise EpisodeFault(f"{name} (of shape {x.shape}, dtype {x.dtype}) must be one whole number")
    return x
