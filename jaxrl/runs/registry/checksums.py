"""SHA-256 of each file of a model, in a file that is written last."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from jaxrl.config.data_files import open_regular, read_object

CHECKSUMS = "checksums.json"
_CHUNK = 1 << 22


def write_checksums(folder: Path) -> None:
    """Writes the file with size and SHA-256 of all other files of a folder."""
    files = {
        path.relative_to(folder).as_posix(): _description_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != CHECKSUMS
    }
    (folder / CHECKSUMS).write_text(json.dumps({"files": files}, indent=1) + "\n")


def damage(folder: Path) -> list[str]:
    """The differences from the checksums, a line for each file; empty for an intact model.

    Files that the checksums do not list are damage too: a reader might take them for the model's.
    """
    try:
        listed = read_object(folder / CHECKSUMS).get("files")
    except (OSError, ValueError) as error:
        return [f"{CHECKSUMS}: {getattr(error, 'strerror', None) or error}"]
    if not isinstance(listed, dict):
        return [f"{CHECKSUMS}: it lists no files"]
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()}
    problems = [f"{name}: not listed" for name in sorted(found - {*listed, CHECKSUMS})]
    for name, wanted in sorted(listed.items()):
        if name not in found:
            problems.append(f"{name}: missing")
        elif (folder / name).is_symlink():
            problems.append(f"{name}: a symbolic link")
        else:
            try:
                same = _is_as(folder / name, wanted)
            except OSError as error:
                problems.append(f"{name}: {error.strerror or error}")
                continue
            problems += [] if same else [f"{name}: not as it was deployed"]
    return problems


def _is_as(path: Path, wanted: Any) -> bool:
    """Compares the size first: a file of another one, however large, is not read."""
    size = wanted.get("size") if isinstance(wanted, dict) else None
    return path.stat().st_size == size and _description_of(path) == wanted


def _description_of(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    size = 0
    with open_regular(path) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return {"size": size, "sha256": digest.hexdigest()}
