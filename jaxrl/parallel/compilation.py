"""XLA's options for each platform, and the cache of compiled programs."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

import jax

_LEVEL = "xla_backend_optimization_level"


def options(platform: str) -> dict[str, str | bool | int | float]:
    """Compiler options for a platform, except where XLA_FLAGS sets them.

    The programs here spend their time in library calls and vectorised loops: on CPU, LLVM's higher levels
    take 10% to 25% longer and gain nothing (docs/performance.md).
    """
    return {_LEVEL: 1} if platform == "cpu" and _LEVEL not in os.environ.get("XLA_FLAGS", "") else {}


@contextlib.contextmanager
def never_cached() -> Iterator[None]:
    """Compiles without caching the result, for programs that no other process can use."""
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    jax.config.update(name, math.inf)
    try:
        yield
    finally:
        jax.config.update(name, before)


def use_compilation_cache() -> None:
    """Caches compiled programs in ~/.cache/jaxrl, so that a config starts faster the second time.

    `JAX_COMPILATION_CACHE_DIR` sets another folder; `JAX_ENABLE_COMPILATION_CACHE=false` turns it off.
    """
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        # A user that the machine does not know, as in many containers, may have no home.
        with contextlib.suppress(RuntimeError):
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxrl" / "xla"
            jax.config.update("jax_compilation_cache_dir", str(cache))
    if not os.environ.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
