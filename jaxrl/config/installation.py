"""The command that adds an extra to this package, and what to do about a platform that did not start."""

from __future__ import annotations

import importlib.util
import os
import traceback
from pathlib import Path

from jaxrl.config.errors import ConfigError
from jaxrl.envs.installation import DISTRIBUTION as DISTRIBUTION
from jaxrl.envs.installation import command as command


def require(asking: str, extra: str, *packages: str) -> None:
    """Raises ConfigError if a package of an extra is not installed that `asking`, such as a flag, needs."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{asking} needs the `{extra}` extra: {command(extra)} (no {missing[0]})")


def missing_platform(error: Exception) -> str | None:
    """The remedy for a platform of JAX_PLATFORMS that did not start; None for other errors."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    frames = traceback.extract_tb(error.__traceback__)
    if not platforms or not frames or Path(frames[-1].filename).name != "xla_bridge.py":
        return None
    extra = "tpu" if "tpu" in platforms else "cuda12"
    return (
        f"`JAX_PLATFORMS` (={platforms}) names no device that JAX can start: unset it, or install what it "
        f"needs, such as {command(extra)}; see jaxrl doctor"
    )
