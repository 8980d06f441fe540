"""Folders of levels, `DIR/{train,test}/CATEGORY/NNNN.json` or `.npz`; the shipped ones too."""

from __future__ import annotations

from pathlib import Path

from jaxrl.envs.bounded_files import read_bytes
from jaxrl.envs.names import check_choice
from jaxrl.envs.native.platformer.level import (
    CATEGORIES,
    LARGEST_LEVEL,
    LevelError,
    PlatformerLevel,
    from_json,
    from_npz,
)

PARTS = ("train", "test")
SHIPPED = Path(__file__).parent / "levels"
MANIFEST = "manifest.json"


class DatasetError(ValueError):
    """A folder of levels is not one, or damaged. The message is one line that names the file."""


def read_levels(label: str, folder: str, category: str) -> tuple[PlatformerLevel, ...]:
    """The levels of `DIR/train` or `DIR/test`, or of the package's "train" or "test".

    Raises:
      ValueError: one line that begins with `label`: no such folder or category, a file that is no level.
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
        content = read_bytes(file, LARGEST_LEVEL)
        level = from_npz(content) if file.suffix == ".npz" else from_json(content)
    except OSError as error:
        raise DatasetError(f"{file}: cannot be read: {error.strerror or error}") from error
    except LevelError as error:
        raise DatasetError(f"{file}: {error}") from error
    if level.category != file.parent.name:
        raise DatasetError(f"{file}: category (={level.category!r:.80}) must be its folder's")
    return level
