"""How this package is installed, and the command that adds an extra to it."""

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


def command(extra: str) -> str:
    """The line for a shell that installs the packages of an extra, in the way this package was installed."""
    without_pip = importlib.util.find_spec("pip") is None and shutil.which("uv") is not None
    return f"{'uv ' if without_pip else ''}pip install {_requirement(extra)}"


def missing_platform(error: Exception) -> str | None:
    """What to do about a platform that JAX_PLATFORMS names and that did not start; None for other errors."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    frames = traceback.extract_tb(error.__traceback__)
    if not platforms or not frames or Path(frames[-1].filename).name != "xla_bridge.py":
        return None
    extra = "tpu" if "tpu" in platforms else "cuda12"
    return (
        f"`JAX_PLATFORMS` (={platforms}) names no device that JAX can start: unset it, or install what it "
        f"needs, such as {command(extra)}; jaxrl doctor says more"
    )


def _requirement(extra: str) -> str:
    # A checkout says so itself, also where it is only on the path.
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
    """What pip noted where the package came from a folder, a file or a repository (PEP 610); else nothing."""
    try:
        noted = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return {}
    return json.loads(noted) if noted else {}
