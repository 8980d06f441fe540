"""One demonstrated episode, as arrays of numpy, and its file, `.npz`: read bounded, and without unpickling.

Arrays: `observations` [T + 1, *O], or `observations.PART` for each part of a dict; `actions` [T, *A];
`rewards`, `terminations`, `truncations` [T]; `action_masks` [T, A] if there are masks; `infos.NAME` [T],
which the environment reported. Scalars: `seed`, `success` (absent if unknown), `player` and `level_id`
(text). Everything else in a file is ignored.
"""

from __future__ import annotations

import dataclasses
import io
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, Mixed, MultiDiscrete, Space
from jaxrl.envs.numbering import own_numbers
from jaxrl.envs.spaces import bounds, has_choice

# A float32 bound that was a float64, or a sum in another order: a value may lie so far outside.
_SLACK = 1e-4

LARGEST_FILE = 2**30  # bytes, of one episode, also once its arrays are unpacked
_MOST_ARRAYS = 1_000
_LONGEST_TEXT = 200  # characters
_INFO = "infos."
# The arrays [T] that each file has beside the observations.
_OF_STEPS = ("actions", "rewards", "terminations", "truncations")


@dataclasses.dataclass(frozen=True)
class Episode:
    """An episode of T steps.

    Attributes:
      observations: [T + 1, *O], a dict if the space is one; the last is what followed the last action.
      actions: [T, *A], as the environment took them; integers, also those observed, are in its own numbers.
      rewards: float32[T].
      terminations, truncations: bool[T]; True at the last step only, if at all. An episode that has neither
        there was cut off where the recording ended.
      action_masks: bool[T, A], or None.
      infos: float32[T] by name, what the environment reported of each step; NaN if it reported nothing.
      seed: of its recording, -1 if it is not known.
      success: True if its task was done; None if nothing is known of that.
      player: who acted: "random", a run, a person.
      level: the level that it was played in, by its digest; "" if there are none, or it is not known.
    """

    observations: Any
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    action_masks: np.ndarray | None = None
    infos: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    seed: int = -1
    success: bool | None = None
    player: str = ""
    level: str = ""

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def episode_return(self) -> float:
        """The sum of the rewards."""
        return float(self.rewards.sum(dtype=np.float64))


class EpisodeFault(ValueError):
    """An episode that cannot be learnt from. The message is one line that names the array."""


def check_episode(episode: Episode, spec: EnvSpec) -> None:
    """Raises EpisodeFault unless an episode is complete, finite and of the environment's spaces."""
    steps = len(episode)
    if steps < 1:
        raise EpisodeFault("has no step")
    for name, x in named_observations(episode.observations):
        _check_array(name, x, steps + 1)
    for name in ("rewards", "terminations", "truncations"):
        _check_array(name, getattr(episode, name), steps, ())
    _check_array("actions", episode.actions, steps)
    if (episode.terminations | episode.truncations)[:-1].any():
        raise EpisodeFault("ends before its last step: one file holds one episode")
    _check_space("observations", episode.observations, spec.observation_space)
    _check_space("actions", episode.actions, spec.action_space)
    if spec.has_action_mask:
        if episode.action_masks is None:
            raise EpisodeFault("has no action_masks, which the environment has")
        _check_array("action_masks", episode.action_masks, steps, (spec.mask_size,))
        assert isinstance(spec.action_space, Discrete | MultiDiscrete)
        choice = has_choice(spec.action_space, episode.action_masks.astype(bool))
        if not choice.all():
            raise EpisodeFault(f"has action_masks that allow no action at step {np.argmin(choice)}")
    for name, x in episode.infos.items():
        _check_array(f"infos.{name}", np.nan_to_num(x), steps, ())


def in_own_numbers(episode: Episode, spec: EnvSpec) -> Episode:
    """The episode of what was seen and done counted from 0, in the environment's own numbers."""
    return dataclasses.replace(
        episode,
        observations=own_numbers(spec.observation_space, episode.observations),
        actions=own_numbers(spec.action_space, episode.actions),
    )


def named_observations(observations: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of observations by the names that files give them: `observations`, `observations.PART`."""
    if not isinstance(observations, dict):
        yield "observations", observations
        return
    for name in sorted(observations):
        for inner, x in named_observations(observations[name]):
            yield f"observations.{name}{inner.removeprefix('observations')}", x


def observations_of(arrays: dict[str, np.ndarray], space: Space, name: str = "observations") -> Any:
    """Inverse of `named_observations`, for a space: of several parts those that it has.

    A space without parts takes the one part of the file that has its shape and dtype.

    Raises:
      EpisodeFault: a part is missing, or it could be more than one.
    """
    if isinstance(space, Dict):
        return {key: observations_of(arrays, part, f"{name}.{key}") for key, part in space.spaces}
    if name in arrays:
        return arrays[name]
    parts = {key: x for key, x in arrays.items() if key.startswith(f"{name}.")}
    alike = [key for key, x in parts.items() if x.shape[1:] == space.shape and x.dtype == space.dtype]
    if len(alike) != 1:
        there = f"; it has {', '.join(sorted(parts))}" if parts else ""
        raise EpisodeFault(f"has no array {name}{there}")
    return parts[alike[0]]


def require_numbers(name: str, dtype: np.dtype) -> None:
    """Raises EpisodeFault if an array of this dtype holds something else."""
    if dtype.kind not in "biuf":
        raise EpisodeFault(f"{name} (of dtype {dtype}) must hold numbers")


def _check_array(name: str, x: np.ndarray, rows: int, shape: tuple[int, ...] | None = None) -> None:
    require_numbers(name, x.dtype)
    if x.ndim < 1 or len(x) != rows:
        raise EpisodeFault(f"{name} (of shape {x.shape}) must have {rows} rows")
    if shape is not None and x.shape[1:] != shape:
        raise EpisodeFault(f"{name} (of shape {x.shape}) must have the shape {(rows, *shape)}")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        row = int(np.argwhere(~np.isfinite(x))[0][0])
        raise EpisodeFault(f"{name} must be finite; row {row} is not")


def _check_space(name: str, x: Any, space: Space) -> None:
    if isinstance(space, Dict):
        for key, part in space.spaces:
            _check_space(f"{name}.{key}", x[key], part)
        return
    if x.shape[1:] != space.shape:
        raise EpisodeFault(f"{name} (of shape {x.shape}) must have rows of the space's shape {space.shape}")
    if np.issubdtype(space.dtype, np.integer) and x.dtype.kind == "f" and not (x == np.round(x)).all():
        raise EpisodeFault(f"{name} must hold whole numbers")
    if np.issubdtype(space.dtype, np.integer) and (x != x.astype(space.dtype)).any():
        raise EpisodeFault(f"{name} must hold numbers of {np.dtype(space.dtype)}")
    # Environments of floats may leave the bounds that they state, as a last observation often does.
    if name != "actions" and isinstance(space, Box):
        return
    low, high = _bounds(space)
    outside = (x < low - _SLACK * np.abs(low)) | (x > high + _SLACK * np.abs(high))
    if outside.any():
        row = int(np.argwhere(outside)[0][0])
        raise EpisodeFault(f"{name} must lie in the space {type(space).__name__}; row {row} does not")


def _bounds(space: Discrete | MultiDiscrete | Box | Mixed) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(space, Mixed):
        parts = [_bounds(part) for _, part in space.spaces]
        low, high = (np.concatenate([np.ravel(part[i]) for part in parts]) for i in (0, 1))
        return low, high
    return bounds(space)


def encode(episode: Episode) -> bytes:
    """The content of an episode's file; the same for the same episode."""
    arrays: dict[str, Any] = dict(named_observations(episode.observations))
    arrays |= {name: getattr(episode, name) for name in _OF_STEPS}
    if episode.action_masks is not None:
        arrays["action_masks"] = episode.action_masks
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


def decode(content: bytes, spec: EnvSpec) -> Episode:
    """Inverse of `encode`; EpisodeFault if it is no episode of this environment, or damaged."""
    arrays = read_arrays(content)
    for name in _OF_STEPS:
        if name not in arrays:
            raise EpisodeFault(f"has no array {name}")
    dtypes = {"rewards": np.float32, "terminations": bool, "truncations": bool, "action_masks": bool}
    columns: dict[str, Any] = {
        name: _numbers(name, arrays[name], dtype) for name, dtype in dtypes.items() if name in arrays
    }
    episode = Episode(
        observations=observations_of(arrays, spec.observation_space),
        actions=arrays["actions"],
        **columns,
        infos={
            name.removeprefix(_INFO): _numbers(name, x, np.float32)
            for name, x in arrays.items()
            if name.startswith(_INFO)
        },
        level=text_of(arrays, "level_id"),
        **facts_of(arrays),
    )
    check_episode(episode, spec)
    return episode


def facts_of(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """`seed`, `success` and `player` of an episode's file."""
    success = arrays.get("success")
    return {
        "seed": int(whole_number("seed", arrays.get("seed", np.int64(-1)))),
        "success": None if success is None else bool(whole_number("success", success)),
        "player": text_of(arrays, "player"),
    }


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
    except Exception as error:  # MemoryError, zlib.error, OverflowError, ...
        raise EpisodeFault(f"is no .npz of arrays ({type(error).__name__})") from error


def _numbers(name: str, x: np.ndarray, dtype: Any) -> np.ndarray:
    require_numbers(name, x.dtype)
    return x.astype(dtype)


def whole_number(name: str, x: Any) -> Any:
    """The array if it is one whole number or bool, else EpisodeFault."""
    if x.shape != () or x.dtype.kind not in "biu":
        raise EpisodeFault(f"{name} (of shape {x.shape}, dtype {x.dtype}) must be one whole number")
    return x
