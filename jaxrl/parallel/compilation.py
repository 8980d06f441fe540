"""XLA's options for each platform, the cache of compiled programs, and the memory of compilation."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

_log = logging.getLogger(__name__)

# Held by the thread that traces a program. Python runs one thread at a time: if several trace at once, XLA
# has nothing to compile until all of them are nearly done.
_tracing = threading.Lock()


@dataclass(frozen=True)
class XlaFlag:
    """A flag of XLA with which programs are compiled.

    Attributes:
      source: the page that recommends it, and the reason.
      several_devices: True for a flag of programs over several devices only.
      brief: True for a flag of brief programs only, which take longer to compile than they run.
    """

    name: str
    value: str | bool | int | float
    source: str
    several_devices: bool = False
    brief: bool = False


# By platform. docs/gpu.md, "XLA's flags", lists flags that others recommend and that are not set here.
FLAGS: dict[str, tuple[XlaFlag, ...]] = {
    "cpu": (
        XlaFlag(
            "xla_backend_optimization_level",
            1,
            "measured here (docs/performance.md): the programs spend their time in library calls and "
            "vectorised loops, and LLVM's higher levels take 10% to 25% longer and gain nothing",
        ),
        XlaFlag(
            "xla_cpu_experimental_ynn_fusion_type",
            "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_REDUCE",
            "measured here (docs/performance.md): XLA's default but for convolutions, which YNNPACK makes "
            "slower than XLA's own, on jax 0.11 by two fifths",
        ),
        XlaFlag(
            "xla_cpu_use_fusion_emitters",
            False,
            "measured here (docs/performance.md): MLIR's kernels are faster by an eighth, and take two "
            "fifths of the time of a compilation; jax 0.11 has no such option",
            brief=True,
        ),
    ),
    "gpu": (
        XlaFlag(
            "xla_gpu_enable_latency_hiding_scheduler",
            True,
            "docs.jax.dev/en/latest/gpu_performance_tips.html; set in NVIDIA's images, "
            "docs.nvidia.com/jax-toolbox/environment-variables: collectives beside computation",
            several_devices=True,
        ),
    ),
}


def flags(platform: str, device_count: int = 1, brief: bool = False) -> dict[str, str | bool | int | float]:
    """Compiler options of `FLAGS` for a program, except those that XLA_FLAGS sets; see `XlaFlag.brief`."""
    given = os.environ.get("XLA_FLAGS", "")
    return {
        flag.name: flag.value
        for flag in FLAGS.get(platform, ())
        if flag.name not in given
        and (device_count > 1 or not flag.several_devices)
        and (brief or not flag.brief)
    }


_asking = threading.Lock()
_answers: dict[tuple[str, str], bool] = {}  # by platform and option: what its compiler said in this process


def options(device: jax.Device, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The options in `wanted` that the compiler for a device knows; new versions of XLA drop some.

    The device may be only described. Each option is tested once per process, by compiling an empty program.
    """
    with _asking:
        while unasked := {
            name: value for name, value in wanted.items() if (device.platform, name) not in _answers
        }:
            refused = _refused(device, unasked)
            if refused is None:
                _answers.update(dict.fromkeys(((device.platform, name) for name in unasked), True))
            else:
                _log.debug("jax %s: XLA has no option %s; it is left out", jax.__version__, refused)
                _answers[device.platform, refused] = False
        return {name: value for name, value in wanted.items() if _answers[device.platform, name]}


def _refused(device: jax.Device, some: Mapping[str, Any]) -> str | None:
    """The first of some options that the compiler does not know; None if it knows them all."""
    argument = jax.ShapeDtypeStruct((), "int32", sharding=SingleDeviceSharding(device))
    try:
        jax.jit(lambda x: x).lower(argument).compile(compiler_options=dict(some))
    except jax.errors.JaxRuntimeError as error:
        found = re.search(r"No such compile option: '(\w+)'", str(error))
        if found is None or found[1] not in some:
            raise
        return found[1]
    return None


def compile_in_turn(lower: Callable[[], Any]) -> Any:
    """Compiles what `lower` traces and lowers; here only one thread at a time traces.

    The compilations themselves run in parallel.
    """
    with _tracing:
        lowered = lower()
    return lowered.compile()


def await_turn() -> None:
    """Waits for the threads that trace in `compile_in_turn` now, or wait to."""
    with _tracing:
        pass


def return_memory() -> None:
    """Returns freed memory to the system: glibc keeps it, hundreds of MiB after a program was compiled.

    Nothing happens with another C library, as on macOS.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # TypeError: on Windows
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


@contextlib.contextmanager
def without_cache() -> Iterator[None]:
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
        # A user without an entry on the machine, as in many containers, may have no home.
        with contextlib.suppress(RuntimeError):
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxrl" / "xla"
            jax.config.update("jax_compilation_cache_dir", str(cache))
    if not os.environ.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
