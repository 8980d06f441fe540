"""Puts packages into an environment: with uv, several times as fast as pip, or with pip where uv cannot."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

# pip's settings that uv would have to follow, and does not know.
_OTHERS = re.compile(r"^\S+\.(index-url|no-index|proxy)=", re.MULTILINE)


def install(python: Path, what: Sequence[str], pip: Callable[[list[str]], int]) -> int:
    """Installs `what` into the environment of a Python; returns the exit code.

    With the uv of the machine, else with one that pip puts into the environment. Should that one fail, as
    behind an index that only pip knows, pip is asked.

    Args:
      what: arguments that `pip install` and `uv pip install` both have.
      pip: runs a command of pip.
    """
    uv = shutil.which("uv") or _own_uv(python)
    if uv:
        code = subprocess.run([uv, "pip", "install", "--python", str(python), *what]).returncode
        if code == 0 or shutil.which("uv"):
            return code
        print("      uv could not; once more with pip", flush=True)
    # Python compiles a module at its first import; pip would compile all, which takes 20 s and more.
    later = [] if sys.dont_write_bytecode else ["--no-compile"]
    return pip([str(python), "-m", "pip", "install", "--disable-pip-version-check", *later, *what])


def _own_uv(python: Path) -> str | None:
    """The uv of an environment, from pip if it has none; None if pip cannot or is told where to look."""
    uv = python.with_name("uv")
    if not uv.exists():
        pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
        settings = subprocess.run([*pip, "config", "list"], capture_output=True, text=True).stdout
        if not _OTHERS.search(settings):
            subprocess.run([*pip, "install", "--quiet", "uv"], capture_output=True)
    return str(uv) if uv.exists() else None
