"""Folders of levels, the shipped ones too: how they are written, read and verified.

DIR/{train,test}/CATEGORY/NNNN.json   one level each; also .npz
DIR/manifest.json                     of each its category, seed, size, optimal steps and digest
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxrl.envs.bounded_files import read_bytes, read_json
from jaxrl.envs.names import check_choice
from jaxrl.envs.native.platformer import level as tiles
from jaxrl.envs.native.platformer.generator import generate
from jaxrl.envs.native.platformer.level import CATEGORIES, LevelError, PlatformerLevel
from jaxrl.envs.native.platformer.solver import solves

PARTS = ("train", "test")
SHIPPED = Path(__file__).parent / "levels"
MANIFEST = "manifest.json"
_FORMAT = 1


class DatasetError(ValueError):
    """A folder of levels is not one, or damaged. The message is one line that names the file."""


def read_levels(label: str, folder: str, category: str) -> tuple[PlatformerLevel, ...]:
    """The levels of `DIR/train` or `DIR/test`, or of the package's "train" or "test".

    ValueError, which begins with `label`: no such folder or category, a file that is no level.
    """
    check_choice(f"{label}category", category, ("all", *CATEGORIES))
    if not isinstance(folder, str) or not folder:
        raise ValueError(f"{label}levels (={folder!r}) must be the name of a folder")
    place = SHIPPED / folder if folder in PARTS else Path(folder)
    chosen = CATEGORIES if category == "all" else (category,)
    if not any((place / name).is_dir() for name in CATEGORIES):
        hint = " (choose its train or test)" if (place / MANIFEST).exists() else ""
        raise ValueError(f"{label}levels (={folder!r}) is no folder of levels{hint}")
    inside = [file for name in chosen for file in sorted((place / name).glob("*"))]
    files = [file for file in inside if file.suffix in (".json", ".npz")]
    if not files:
        raise ValueError(f"{label}levels (={folder!r}) has no level of the category {category}")
    try:
        return tuple(read_level(file) for file in files)
    except DatasetError as error:
        raise ValueError(f"{label}levels (={folder!r}): {error}") from error


def read_level(file: Path) -> PlatformerLevel:
    """Reads one level; DatasetError names the file."""
    try:
        content = read_bytes(file, tiles.LARGEST_LEVEL)
        level = tiles.from_npz(content) if file.suffix == ".npz" else tiles.from_json(content)
    except OSError as error:
        raise DatasetError(f"{file}: cannot be read: {error.strerror or error}") from error
    except LevelError as error:
        raise DatasetError(f"{file}: {error}") from error
    if level.category != file.parent.name:
        raise DatasetError(f"{file}: category (={level.category!r:.80}) must be its folder's")
    return level


def write_dataset(
    folder: Path, levels: int, seed: int, tell: Callable[[str, int, int], None] = lambda name, done, of: None
) -> dict[str, int]:
    """Generates levels for training, as many of each category as can be, and a quarter as many for tests.

    No two levels of a folder are equal. The same arguments write the same files. Returns the number of
    levels, by part/category.

    Args:
      folder: is created; must not hold anything.
      levels: for training, at least one of each category.
      seed: of the first; the others follow.
      tell: called after each level with (part/category, how many of it there are, of how many).
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DatasetError(f"{folder}: exists and is no empty folder")
    entries: dict[str, Any] = {}
    seen: set[str] = set()
    counts = {}
    for index, category in enumerate(CATEGORIES):
        seeds = itertools.count(seed)
        train = levels // len(CATEGORIES) + (index < levels % len(CATEGORIES))
        for part, count in (("train", train), ("test", max(1, train // 4))):
            for i in range(count):
                made = (generate(category, one) for one in seeds)
                level = next(level for level in made if level.digest not in seen)
                seen.add(level.digest)
                name = f"{part}/{category}/{i:04}.json"
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(level.to_json())
                entries[name] = _entry(level)
                tell(f"{part}/{category}", i + 1, count)
            counts[f"{part}/{category}"] = count
    manifest = {"environment": "jaxrl:Platformer", "format": _FORMAT, "seed": seed, "levels": entries}
    # Last: a folder without it was not finished.
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return counts


def _entry(level: PlatformerLevel) -> dict[str, Any]:
    return {
        "category": level.category,
        "seed": level.seed,
        "size": [len(level.rows), len(level.rows[0])],
        "optimal_steps": level.optimal_steps,
        "digest": level.digest,
    }


def verify_dataset(folder: Path) -> dict[str, int]:
    """The number of levels, by part/category, of a folder that is as its manifest says; plays every solution.

    DatasetError is the first fault, with the file: a category or a level is missing, a file is no level, is
    not in the manifest or differs from it, cannot be solved by its solution, or occurs twice.
    """
    entries = _read_manifest(folder / MANIFEST)
    counts: dict[str, int] = {}
    first_of: dict[str, Path] = {}
    for part, category in itertools.product(PARTS, CATEGORIES):
        inside = folder / part / category
        files = sorted(inside.glob("*")) if inside.is_dir() else []
        if not files:
            raise DatasetError(f"{inside}: the category is missing: there is no level in it")
        for file in files:
            name = file.relative_to(folder).as_posix()
            if name not in entries:
                raise DatasetError(f"{file}: is not in {MANIFEST}")
            level = read_level(file)
            _compare(file, entries.pop(name), _entry(level))
            if not solves(level, level.solution):
                raise DatasetError(f"{file}: cannot be solved: its solution does not reach the exit")
            if level.digest in first_of:
                raise DatasetError(f"{file}: is the same level as {first_of[level.digest]}")
            first_of[level.digest] = file
        counts[f"{part}/{category}"] = len(files)
    for name in entries:
        raise DatasetError(f"{folder / name}: is in {MANIFEST} and not there")
    return counts


def _compare(file: Path, said: Any, found: dict[str, Any]) -> None:
    for key, value in found.items():
        if not isinstance(said, dict) or said.get(key) != value:
            given = said.get(key) if isinstance(said, dict) else said
            raise DatasetError(f"{file}: its {key} is {value}, {MANIFEST} has {given}")


def _read_manifest(file: Path) -> dict[str, Any]:
    try:
        data = read_json(file)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file}: cannot be read: {' '.join(str(error).split())}") from error
    found = data if isinstance(data, dict) else {}
    if found.get("format") != _FORMAT or not isinstance(found.get("levels"), dict):
        raise DatasetError(f"{file}: is no manifest of levels of format {_FORMAT}")
    return dict(found["levels"])
