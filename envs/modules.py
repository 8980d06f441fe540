"""Imports of what a user names, `path.to.module:Name`, never from inside the folder of a run; its errors."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import traceback
from importlib.machinery import all_suffixes
from pathlib import Path
from types import ModuleType
from typing import Any

# Both together mark the folder of a run. A run folder comes from wherever its owner got it:
# its content is data.
_RUN = ("config.json", "checkpoints")
# A frame of a traceback that is text: of another process, or of what a compiled program has called.
_FRAME = re.compile(r'^ +File "([^"\n]+)", line (\d+), in .*\n(?: +.*\n)*?(?=\S| +File |\Z)', re.MULTILINE)
# What is wrong in an installed environment or network is seldom wrong in what it is written with.
_LIBRARIES = ("jax", "jaxlib", "flax", "optax", "chex", "numpy", "gymnasium", "pettingzoo")


def load(path: str) -> ModuleType:
    """Imports the module `path`, which may lie in the current folder.

    ModuleNotFoundError, with its `name`: there is none. ValueError, one line: it cannot be imported, or lies
    inside the folder of a run.
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
    """Imports `path.to.module:name`; ValueError, one line that begins with `label`, if that fails."""
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
        run = next((folder for folder in place.parents if all((folder / x).exists() for x in _RUN)), None)
        if run is not None:
            raise ValueError(f"{path} is a file of the run {run}, and no code is imported from there")


def one_line(error: BaseException) -> str:
    """`Type: message`, with the last line of a user's at which it arose."""
    text = str(error)
    if frames := list(_FRAME.finditer(text)):
        text = text[frames[-1].end() :]
    else:
        text = f"{type(error).__name__}{': ' if text.strip() else ''}{text}"
    text = " ".join(text.split())
    line = "" if isinstance(error, SyntaxError) else _place(error)  # which has the line already
    return text if line in text else f"{text}{' ' if ': ' in text else ': '}{line}"


def passed_users(error: BaseException) -> bool:
    """True if the error, or what caused it, came through a file of the user's."""
    return any(_is_users(frame.filename) for frame in _frames(error))


def _place(error: BaseException) -> str:
    """`(mine.py, line 3: raise ValueError)`; the line of an installed package if there is no user's."""
    others = [f for f in _frames(error) if not _is_ours(f.filename)]
    users = [f for f in others if _is_users(f.filename)]
    installed = [f for f in others if not _is_library(f.filename)]
    if not installed:
        return ""
    frame = (users or installed)[-1]
    shown = f": {frame.line}" if frame.line else ""
    return f"({os.path.basename(frame.filename)}, line {frame.lineno}{shown})"


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """From the outermost call to the innermost; frames of the first cause come last."""
    found: list[traceback.FrameSummary] = []
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:  # `raise error from error` has no first one
        found += traceback.extract_tb(cause.__traceback__)
        found += [traceback.FrameSummary(name, int(line), "") for name, line in _FRAME.findall(str(cause))]
        causes.append(cause)
        cause = cause.__cause__
    return found


def _is_users(filename: str) -> bool:
    return not (_is_ours(filename) or "site-packages" in filename or filename == "<string>")


def _is_ours(filename: str) -> bool:
    python = (os.path.dirname(os.__file__) + os.sep, "<frozen")
    package = str(Path(__file__).parents[1]) + os.sep
    return filename.startswith(package) or (filename.startswith(python) and "site-packages" not in filename)


def _is_library(filename: str) -> bool:
    return any(f"{os.sep}{name}{os.sep}" in filename.partition("site-packages")[2] for name in _LIBRARIES)


def _places(path: str) -> list[Path]:
    """The files that importing `path` may run."""
    first, *rest = path.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except ValueError:  # of a module that comes from nowhere, such as `__main__`
        spec = None
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
