"""Folders of episodes: `DIR/*.npz` and, written last, `DIR/manifest.json`."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.config.errors import errors_as
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.bounded_files import read_bytes, read_object
from jaxrl.experience.demonstrations import foreign_files
from jaxrl.experience.demonstrations.episode import LARGEST_FILE, Episode, EpisodeFault, decode, encode

MANIFEST = "manifest.json"
FORMAT = "jaxrl-episodes"
_MOST_EPISODES = 1_000_000
PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth")
_SPLIT_SEED = 0x53504C49  # the same episodes validate whatever the seed of a run


class DatasetFault(ValueError):
    """A folder that is no set of demonstrations, or damaged. The message is one line that names the file."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The episodes of a folder.

    Attributes:
      episodes: in the order of their files' names.
      digest: over the content of all.
      files: their names; none of Minari's and D4RL's.
    """

    folder: str
    episodes: tuple[Episode, ...]
    digest: str
    files: tuple[str, ...] = ()

    def split(self, share: float) -> tuple[tuple[Episode, ...], tuple[Episode, ...]]:
        """(training, validation): whole episodes, so that no step of one is learnt from and judged by.

        Validation gets a share of them, rounded, but at least one; with 0, or of a single episode, none.
        """
        count = len(self.episodes)
        held = min(max(round(share * count), 1), count - 1) if share else 0
        order = np.random.default_rng(_SPLIT_SEED).permutation(count)
        chosen = set(order[:held].tolist())
        parts = [[e for i, e in enumerate(self.episodes) if (i in chosen) is part] for part in (False, True)]
        return tuple(parts[0]), tuple(parts[1])

    def summary(self) -> dict[str, Any]:
        """Counts and means for people, as JSON values."""
        lengths = np.array([len(e) for e in self.episodes])
        returns = np.array([e.episode_return for e in self.episodes])
        known = [e.success for e in self.episodes if e.success is not None]
        found: dict[str, Any] = {
            "episodes": len(self.episodes),
            "steps": int(lengths.sum()),
            "length": [int(lengths.min()), float(lengths.mean()), int(lengths.max())],
            "return": [float(returns.min()), float(returns.mean()), float(returns.max())],
            "players": sorted({e.player for e in self.episodes if e.player}),
            "digest": self.digest,
        }
        if unmarked := sum(not (e.terminations[-1] or e.truncations[-1]) for e in self.episodes):
            found["unmarked_ends"] = unmarked
        if known:
            found["success"] = float(np.mean(known))
        return found


def write_dataset(
    folder: Path, episodes: Iterable[Episode], spec: EnvSpec, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes episodes into a new or empty folder, the manifest last; returns that.

    Args:
      episodes: checked when they were recorded.
      facts: JSON values to keep: wrappers, who played, versions.

    Raises:
      DatasetFault: the folder exists and is not empty.
      OSError: it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DatasetFault(f"{folder}: exists and is no empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    listed: dict[str, Any] = {}
    for i, episode in enumerate(episodes):
        name = f"{i:06}.npz"
        content = encode(episode)
        (folder / name).write_bytes(content)
        listed[name] = {
            "digest": _digest(content),
            "length": len(episode),
            "return": episode.episode_return,
            "terminated": bool(episode.terminations[-1]),
            "truncated": bool(episode.truncations[-1]),
        }
    manifest = {
        "format": FORMAT,
        "version": 1,
        "env": spec.name,
        "observation_space": _describe(spec.observation_space),
        "action_space": _describe(spec.action_space),
        **facts,
        "episodes": listed,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def is_dataset(folder: Path) -> bool:
    """True if the folder holds episodes and not, say, levels."""
    if _minari_folder(folder) is not None or next(folder.glob("*.npz"), None):
        return True
    with contextlib.suppress(DatasetFault):
        return bool(_manifest(folder).get("format") == FORMAT)
    return False


def environment_of(folder: Path) -> tuple[str, tuple[str, ...]]:
    """(environment, wrappers) that the manifest names; ("", ()) without one."""
    if not has_manifest(folder):
        return "", ()
    manifest = _manifest(folder)
    name = manifest.get("env")
    wrappers = manifest.get("wrappers", [])
    if not isinstance(name, str) or not isinstance(wrappers, list):
        return "", ()
    return name, tuple(str(wrapper) for wrapper in wrappers)


def is_simulated(folder: Path) -> bool:
    """True if the episodes of a folder follow from their actions, levels and seeds, by its manifest."""
    return has_manifest(folder) and "simulated" in _manifest(folder)


def has_manifest(folder: Path) -> bool:
    """True if there is a manifest to compare files with: other programs write none."""
    return (folder / MANIFEST).exists()


def read_dataset(folder: str, spec: EnvSpec, verify: bool = False) -> Dataset:
    """Reads every episode of a folder.

    Args:
      folder: of `.npz` files, with a manifest or without, of a Minari data set, or a file in D4RL's layout.
      verify: also compare each file with the manifest, if there is one.

    Raises:
      DatasetFault: the first fault, with its file.
    """
    place = Path(folder).expanduser()
    if place.suffix in PICKLES:
        raise DatasetFault(
            f"{folder}: pickled files can run any code and are not read; convert them where you trust them: "
            "np.savez(FILE, observations=..., actions=..., rewards=..., terminations=..., truncations=...)"
        )
    if place.suffix in foreign_files.D4RL_SUFFIXES and place.is_file():
        return _collect(folder, place, foreign_files.read_d4rl(place, spec))
    if not place.is_dir():
        raise DatasetFault(f"{folder}: is no folder of episodes")
    if (minari := _minari_folder(place)) is not None:
        return _collect(folder, minari, foreign_files.read_minari(minari, spec))
    files = sorted(place.glob("*.npz"))
    if not files:
        pickles = [file for file in sorted(place.iterdir()) if file.suffix in PICKLES]
        if pickles:
            return read_dataset(str(pickles[0]), spec)
        raise DatasetFault(f"{folder}: holds no episode (*.npz)")
    if len(files) > _MOST_EPISODES:
        raise DatasetFault(f"{folder}: holds more than {_MOST_EPISODES:,} episodes")
    verify = verify and has_manifest(place)
    listed = _read_manifest(place, files) if verify else {}
    episodes = []
    total = hashlib.blake2b(digest_size=16)
    for file in files:
        try:
            content = read_bytes(file, LARGEST_FILE)
        except OSError as error:
            raise DatasetFault(f"{file}: cannot be read: {error.strerror or error}") from error
        with errors_as(DatasetFault, file, EpisodeFault):
            episode = decode(content, spec)
        digest = _digest(content)
        if verify:
            _compare(file, listed[file.name], episode, digest)
        episodes.append(episode)
        total.update(digest.encode())
    return Dataset(folder, tuple(episodes), total.hexdigest(), tuple(file.name for file in files))


def _minari_folder(folder: Path) -> Path | None:
    """The Minari data set that a folder is read from; None if it has episodes of our own, which say more."""
    if next(folder.glob("*.npz"), None) or has_manifest(folder):
        return None
    return foreign_files.minari_folder(folder)


def _collect(folder: str, place: Path, found: Iterator[Episode]) -> Dataset:
    """The data set of episodes that are in no files of our own; `place` is named with a fault."""
    with errors_as(DatasetFault, place, EpisodeFault):
        episodes = tuple(found)
    if not episodes:
        raise DatasetFault(f"{folder}: holds no episode")
    total = hashlib.blake2b(digest_size=16)
    for episode in episodes:
        total.update(encode(episode))
    return Dataset(folder, episodes, total.hexdigest())


def _compare(file: Path, entry: Any, episode: Episode, digest: str) -> None:
    found = {"digest": digest, "length": len(episode)}
    for name, value in found.items():
        if not isinstance(entry, dict) or entry.get(name) != value:
            said = entry.get(name) if isinstance(entry, dict) else entry
            raise DatasetFault(f"{file}: its {name} is {value}, in {MANIFEST} it is {said!r:.60}")


def _read_manifest(folder: Path, files: list[Path]) -> dict[str, Any]:
    manifest = _manifest(folder)
    listed = manifest.get("episodes")
    if manifest.get("format") != FORMAT or not isinstance(listed, dict):
        raise DatasetFault(f"{folder / MANIFEST}: is no manifest of episodes")
    there = {file.name for file in files}
    for name in sorted(set(listed) ^ there):
        text = "is in manifest.json and not there" if name in listed else "is not in manifest.json"
        raise DatasetFault(f"{folder / name}: {text}")
    return listed


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        return read_object(folder / MANIFEST)
    except OSError as error:
        raise DatasetFault(f"{folder / MANIFEST}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DatasetFault(f"{folder / MANIFEST}: is no manifest: {error}") from error


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _describe(space: Any) -> str:
    text = str(space)
    return text if len(text) <= 300 else f"{text[:300]}..."
