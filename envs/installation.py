"""The way this package was installed, and the command that adds an extra to it.

Standard library only: errors name the command, also if jax itself is missing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import traceback
from pathlib import Path
from typing import Any

# What `pip install` and package indexes call it; what is imported is `jaxrl`.
DISTRIBUTION = "jaxrl-recurrent"
# By extra: packages that ask for one that overwrites another of ours.
_WITHOUT_DEPENDENCIES = {"popgym-arcade": "popgym-arcade"}


def command(extra: str) -> str:
    """The line for a shell that installs the packages of an extra, in the way this package was installed."""
    extra = extra.replace("_", "-")  # pip before 23.3 knows extras in this form alone
    install = _install()
    line = f"{install} {_requirement(extra)}"
    package = _WITHOUT_DEPENDENCIES.get(extra)
    return f"{line} && {install} --no-deps {package}" if package else line


def misfit(package: str, error: BaseException) -> str:
    """One line about an import that failed: where, which versions met there, and what to install instead."""
    found = importlib.metadata.packages_distributions()
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    # An attribute that jax no longer has is missing in jax, but another package asks for it.
    asking = [name.partition(".")[0] for name in frames if name.partition(".")[0] not in ("jax", "jaxrl")]
    places = [package, *(name for name in asking if name in found)]
    installed = [found[name][0] for name in dict.fromkeys((package, places[-1])) if name in found]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in (*installed, "jax"))
    text = " ".join(str(error).split())
    return (
        f"importing {package} failed in {places[-1]} ({versions}): {type(error).__name__}: {text}; "
        f"versions that fit: {_install()} --upgrade {' '.join(installed) or package}"
    )


def _install() -> str:
    without_pip = importlib.util.find_spec("pip") is None and shutil.which("uv") is not None
    return "uv pip install" if without_pip else "pip install"


def _requirement(extra: str) -> str:
    # A checkout has this file, also if it is only on the path.
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").exists():
        place = "." if checkout.samefile(os.getcwd()) else str(checkout)
        return f"-e '{place}[{extra}]'"
    origin = _origin()
    url = origin.get("url", "")
    if "vcs_info" in origin:
        return f"'{DISTRIBUTION}[{extra}] @ {origin['vcs_info']['vcs']}+{url}'"
    if "dir_info" in origin:
        return f"'{url.removeprefix('file://')}[{extra}]'"
    return f"'{DISTRIBUTION}[{extra}] @ {url}'" if url else f"'{DISTRIBUTION}[{extra}]'"


def _origin() -> dict[str, Any]:
    """The source that pip noted (PEP 610): a folder, a file or a repository; {} if it came from an index."""
    try:
        noted = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return {}
    return json.loads(noted) if noted else {}
