"""Checks of a machine before training, each with advice."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl.config import installation
from jaxrl.config.installation import DISTRIBUTION
from jaxrl.config.text import size
from jaxrl.diagnostics import packages, smoke_run

OK = "ok"
WARNING = "warning"
BROKEN = "broken"

_GIGABYTE = 10**9
_PROBE_SECONDS = 180  # enough to compile on a loaded machine
# The oldest drivers that run the CUDA of jax's wheels.
_DRIVERS = {"cuda12": 525, "cuda13": 580}
# Environment variables that slow training down or change what it computes, and how.
_COSTLY = {
    "JAX_DISABLE_JIT": "nothing is compiled",
    "JAX_DEBUG_NANS": "every operation is checked, one by one",
    "JAX_ENABLE_X64": "64-bit numbers take twice the memory",
    "JAX_LOG_COMPILES": "every compilation is logged",
}
_COSTLY_FLAGS = {
    "xla_backend_optimization_level=0": "code is not optimised",
    "xla_force_host_platform_device_count": "that many CPU devices share the same cores",
    "xla_dump_to": "every program is written to disk",
}


@dataclass(frozen=True)
class HealthFinding:
    """The result of a check: `status` is "ok", "warning" or "broken"; `advice` is empty for "ok"."""

    check: str
    status: str
    found: str
    advice: str = ""


def examine(workdir: str, bucket: str | None) -> Iterator[HealthFinding]:
    """The results of all checks; `workdir` is the folder for runs, `bucket` a gs:// folder to try."""
    yield python()
    yield from versions()
    yield from xla_settings()
    yield driver()
    yield memory()
    yield disk("disk", workdir)
    yield disk("cache", os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache_folder())
    if bucket:
        yield bucket_access(bucket)
    yield from training()


def python() -> HealthFinding:
    """The interpreter that runs this."""
    found = f"{platform.python_version()} at {sys.executable}"
    try:
        accepted = importlib.metadata.metadata(DISTRIBUTION)["Requires-Python"]
    except importlib.metadata.PackageNotFoundError:
        return HealthFinding(
            "python", WARNING, f"{found}; jaxrl is not installed", "pip install -e . in the checkout"
        )
    from packaging.specifiers import SpecifierSet

    if platform.python_version() in SpecifierSet(accepted):
        return HealthFinding("python", OK, found)
    return HealthFinding(
        "python", BROKEN, f"{found}; jaxrl needs {accepted}", "make a venv with another Python: make setup"
    )


def versions() -> Iterator[HealthFinding]:
    """Installed packages against the requirements of jaxrl, jax and its plugins."""
    for other in packages.others_of_the_same_name():
        yield HealthFinding(
            "versions", BROKEN, f"{other} installs a package `jaxrl` too", f"pip uninstall {other}"
        )
    wrong = list(
        packages.unmet(
            (DISTRIBUTION, "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", *packages.plugins())
        )
    )
    shown = ", ".join(
        f"{name} {packages.installed_version(name)}"
        for name in ("jax", "jaxlib", "flax", *packages.plugins())
    )
    if not wrong:
        yield HealthFinding("versions", OK, shown)
    for text, requirement in wrong:
        yield HealthFinding("versions", BROKEN, text, f"pip install '{requirement}'")


def xla_settings() -> Iterator[HealthFinding]:
    """Settings that cost speed, such as XLA_FLAGS; with unknown flags XLA aborts the smoke run."""
    flags = os.environ.get("XLA_FLAGS", "")
    costly = [f"{flag}: {cost}" for flag, cost in _COSTLY_FLAGS.items() if flag in flags]
    costly += [f"{name}: {cost}" for name, cost in _COSTLY.items() if _is_on(os.environ.get(name))]
    shown = [f"XLA_FLAGS={flags}"] if flags else []
    shown += [
        f"{n}={v}"
        for n, v in sorted(os.environ.items())
        if n.startswith(("JAX_", "XLA_PYTHON", "LIBTPU_INIT"))
    ]
    found = " ".join(shown) or "none set"
    if costly:
        yield HealthFinding(
            "xla flags", WARNING, f"{found} ({'; '.join(costly)})", "unset these for training at full speed"
        )
    else:
        yield HealthFinding("xla flags", OK, found)


def driver() -> HealthFinding:
    """The NVIDIA driver, and jax's plugin for it."""
    file = Path("/proc/driver/nvidia/version")
    nodes = [path.name for pattern in ("nvidia[0-9]*", "accel[0-9]*") for path in Path("/dev").glob(pattern)]
    match = re.search(r"(\d+)\.\d+(\.\d+)?", file.read_text()) if file.exists() else None
    plugins = packages.plugins()
    if match is None:
        if any(name.startswith("nvidia") for name in nodes):
            text = "GPUs are there, the NVIDIA driver is not loaded"
            return HealthFinding(
                "driver", BROKEN, text, "install or load it; `nvidia-smi` must list the GPUs"
            )
        if nodes and packages.installed_version("libtpu") is None:
            return HealthFinding("driver", BROKEN, "a TPU without libtpu", installation.command("tpu"))
        return HealthFinding(
            "driver",
            OK,
            "no NVIDIA driver and no GPU" if not nodes else f"libtpu {packages.installed_version('libtpu')}",
        )
    major = int(match.group(1))
    if not plugins:
        extra = "cuda13" if major >= _DRIVERS["cuda13"] else "cuda12"
        text = f"NVIDIA {match.group()}, but jax has no CUDA plugin"
        return HealthFinding("driver", BROKEN, text, installation.command(extra))
    for cuda, oldest in _DRIVERS.items():
        if any(cuda in plugin for plugin in plugins) and major < oldest:
            text = f"NVIDIA {match.group()} is too old for {cuda}, which needs {oldest}"
            return HealthFinding(
                "driver",
                BROKEN,
                text,
                "update the driver" + (f", or {installation.command('cuda12')}" * (cuda == "cuda13")),
            )
    return HealthFinding("driver", OK, f"NVIDIA {match.group()}")


def memory() -> HealthFinding:
    """Free memory of the host."""
    import psutil

    machine = psutil.virtual_memory()
    found = f"{size(machine.available)} of {size(machine.total)} free"
    if machine.available < _GIGABYTE:
        return HealthFinding("memory", WARNING, found, "jax alone takes 0.5 GB: end other processes")
    return HealthFinding("memory", OK, found)


def disk(check: str, folder: str) -> HealthFinding:
    """Write access and free space of the folder, or of the nearest existing one above it."""
    place = Path(folder).expanduser().absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    found = f"{size(free)} free at {place}"
    try:
        with tempfile.TemporaryFile(dir=place) as stream:
            stream.write(b"x")
    except OSError as error:
        text = f"{place} cannot be written: {error}"
        return HealthFinding(check, BROKEN, text, "name another folder, or change its owner or mode")
    if free < 0.1 * _GIGABYTE:
        return HealthFinding(check, BROKEN, found, "delete old runs: checkpoints will not fit")
    if free < _GIGABYTE:
        return HealthFinding(
            check, WARNING, found, "delete old runs, or keep fewer checkpoints: --config.checkpoint.keep=1"
        )
    return HealthFinding(check, OK, found)


def cache_folder() -> str:
    """The folder of compiled programs."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "jaxrl")


def bucket_access(bucket: str) -> HealthFinding:
    """Writes an object, reads it back and deletes it."""
    from etils import epath

    from jaxrl.config.errors import ConfigError
    from jaxrl.runs import storage

    name = f"jaxrl-doctor-{os.getpid()}"
    try:
        storage.prepare(bucket)
        file = epath.Path(bucket) / name
        file.write_text(name)
        same = file.read_text() == name
        file.unlink()
    except ConfigError as error:
        return HealthFinding("bucket", BROKEN, str(error), installation.command("gcs"))
    except Exception as error:  # Each backend raises its own.
        text = f"{bucket}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return HealthFinding("bucket", BROKEN, text, _bucket_advice(text))
    if not same:
        return HealthFinding(
            "bucket", BROKEN, f"{bucket}: an object was not read back as written", "try another bucket"
        )
    return HealthFinding("bucket", OK, f"{bucket}: written, read and deleted")


def _bucket_advice(text: str) -> str:
    text = text.lower()
    if "404" in text or "not found" in text or "filenotfound" in text:
        return (
            "is the name right? `gcloud storage ls` lists buckets, `gcloud storage buckets create` makes one"
        )
    if any(word in text for word in ("403", "forbidden", "permission")):
        return "give the account roles/storage.objectUser on the bucket"
    if any(word in text for word in ("401", "credential", "anonymous", "auth")):
        return "gcloud auth application-default login"
    return "check the network, a proxy, and `gcloud auth application-default login`"


def training() -> Iterator[HealthFinding]:
    """Devices and some seconds of training, in another process: a failing XLA ends its process."""
    stages, errors, ended = smoke_run.in_child(_PROBE_SECONDS)
    yield _devices(stages, errors, ended)
    if "devices" in stages:
        yield _training(stages, errors, ended)


def _devices(stages: dict[str, Any], errors: str, ended: str) -> HealthFinding:
    if "devices" not in stages:
        return HealthFinding("devices", BROKEN, f"jax {ended}: {_error_line(errors)}", _start_advice(errors))
    found = stages["devices"]
    text = f"{found['count']} x {found['kind']}"
    if found["bytes"]:
        text += f" with {size(found['bytes'])} each"
    gpus = list(Path("/dev").glob("nvidia[0-9]*"))
    if found["platform"] == "cpu" and gpus and os.environ.get("JAX_PLATFORMS", "") != "cpu":
        return HealthFinding(
            "devices", BROKEN, f"{text}, though there are GPUs", "see `driver` and `versions`"
        )
    return HealthFinding("devices", OK, text)


def _training(stages: dict[str, Any], errors: str, ended: str) -> HealthFinding:
    if "run" not in stages:
        return HealthFinding("training", BROKEN, f"it {ended}: {_error_line(errors)}", _start_advice(errors))
    run = stages["run"]
    pace = run["steps_per_second"]
    compiling = run["compile_seconds"]
    found = f"{pace:,.0f} steps per second of a small network, compiled in {compiling:.1f} s"
    if not run["finite"]:
        text = f"{found}; losses are not finite"
        return HealthFinding("training", BROKEN, text, "unset XLA_FLAGS; try JAX_PLATFORMS=cpu")
    return HealthFinding("training", OK, found)


def _start_advice(errors: str) -> str:
    if "Unknown flag" in errors:
        return "remove the flag from XLA_FLAGS: this version of XLA does not know it"
    if "RESOURCE_EXHAUSTED" in errors or "out of memory" in errors.lower():
        return "another process holds the device's memory: `nvidia-smi` names it"
    if os.environ.get("JAX_PLATFORMS", "cpu") != "cpu" or "Unable to initialize backend" in errors:
        return f"unset JAX_PLATFORMS, or install what it names, such as {installation.command('cuda12')}"
    return "see the message; `python -c 'import jax; jax.devices()'` shows all of it"


def _error_line(errors: str) -> str:
    """The line of the error."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    named = [line for line in lines if "Unknown flag" in line or "Error" in line]
    return (named or lines or ["without a word"])[-1][:300]


def _is_on(value: str | None) -> bool:
    return (value or "").lower() in ("1", "true", "yes", "on", "t", "y")
