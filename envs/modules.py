"""Imports of what a user names, `path.to.module:Name`; never from inside the folder of a run."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from importlib.machinery import ModuleSpec, all_suffixes
from pathlib import Path
from types import ModuleType
from typing import Any

# Beside one another they make a folder that of a run. A run folder comes from wherever its owner got it:
# what lies in it is data.
_RUN = ("config.json", "checkpoints")


def load(path: str) -> ModuleType:
    """Imports the module `path`, which may lie in the current folder.

    Raises:
      ModuleNotFoundError: there is no such module; `name` says which one.
      ValueError: one line; it cannot be imported, or lies inside the folder of a run.
    """
    if not is_name(path):
        raise ValueError(f"{path!r} is no name of a module")
    require_outside_runs(path)
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        raise
    except (Exception, SystemExit) as error:
        raise ValueError(f"importing {path} raised {one_line(error)}") from error


def load_attribute(label: str, name: str) -> Any:
    """Imports `path.to.module:name`; ValueError, one line that begins with `label`, where that fails."""
    path, _, attribute = name.rpartition(":") if isinstance(name, str) else ("", "", "")
    if not path or not attribute:
        raise ValueError(f"{label} (={name!r}) must be of the form path.to.module:name")
    try:
        module = load(path)
    except (ModuleNotFoundError, ValueError) as error:
        raise ValueError(f"{label} (={name!r}): {error}") from error
    if not hasattr(module, attribute):
        raise ValueError(f"{label} (={name!r}): the module {path} has no {attribute}")
    return getattr(module, attribute)


def is_name(path: str) -> bool:
    """True if a module can have that name: `path.to.module`."""
    return all(part.isidentifier() for part in path.split("."))


def is_missing(error: ModuleNotFoundError, path: str) -> bool:
    """True if the module `path` itself is missing, not one that it imports."""
    return bool(error.name) and (path == error.name or path.startswith(f"{error.name}."))


def require_outside_runs(path: str) -> None:
    """Raises ValueError if importing `path` would run a file inside a run's folder; imports nothing.

    Packages without an `__init__` make every file below the current folder importable, so also one that
    came with a run: `runs.ppo.20260101.file`.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for place in _places(path):
        run = next((folder for folder in place.parents if _is_run(folder)), None)
        if run is not None:
            raise ValueError(f"{path} is a file of the run {run}, and no code is imported from there")


def one_line(error: BaseException) -> str:
    """`Type: message`, with the last line outside of this package at which it arose."""
    text = " ".join(str(error).split())
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]
    if frames and not isinstance(error, SyntaxError):  # that says it by itself
        frame = frames[-1]
        line = f"{os.path.basename(frame.filename)}, line {frame.lineno}"
        text += f"{' ' if text else ''}({line}{f': {frame.line}' if frame.line else ''})"
    return f"{type(error).__name__}{': ' if text else ''}{text}"


def _is_users(filename: str) -> bool:
    package = Path(__file__).parents[1]
    others = ("site-packages", "<frozen", "<string>", str(package), os.path.dirname(os.__file__))
    return not any(part in filename for part in others)


def _places(path: str) -> list[Path]:
    """The files that importing `path` may run."""
    first, *rest = path.split(".")
    spec = _spec(first)
    if spec is None:
        return []
    folders = [Path(os.path.realpath(folder)) for folder in spec.submodule_search_locations or ()]
    found = [folder / "__init__.py" for folder in folders]
    if spec.has_location and spec.origin:
        found.append(Path(os.path.realpath(spec.origin)))
    # Looked up here, because the machinery of imports runs a package before it looks inside.
    for part in rest:
        inside = [folder / part for folder in folders]
        folders = [Path(os.path.realpath(folder)) for folder in inside if folder.is_dir()]
        files = [folder.with_name(f"{part}{ending}") for folder in inside for ending in all_suffixes()]
        found += [Path(os.path.realpath(file)) for file in files if file.exists()]
        found += [folder / "__init__.py" for folder in folders]
    return found


def _spec(name: str) -> ModuleSpec | None:
    """The place of a module without a parent."""
    if (loaded := sys.modules.get(name)) is not None:
        return loaded.__spec__
    for finder in sys.meta_path:
        spec = finder.find_spec(name, None) if hasattr(finder, "find_spec") else None
        if spec is not None:
            return spec
    return None


def _is_run(folder: Path) -> bool:
    return all((folder / name).exists() for name in _RUN)
