"""Checks of a machine before training, each with advice."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl.config import installation
from jaxrl.config.installation import DISTRIBUTION
from jaxrl.config.text import size
from jaxrl.diagnostics import smoke_run

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


def _broken(check: str, found: str, advice: str) -> HealthFinding:
    return HealthFinding(check, BROKEN, found, advice)


def examine(workdir: str, bucket: str | None) -> Iterator[HealthFinding]:
    """The results of all checks; `workdir` is the folder for runs, `bucket` a gs:// folder to try."""
    yield python()
    yield from versions()
    yield xla_settings()
    yield driver()
    yield memory()
    yield disk("disk", workdir)
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "jaxrl")
    yield disk("cache", os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache)
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
    advice = "make a venv with another Python: make setup"
    return _broken("python", f"{found}; jaxrl needs {accepted}", advice)


def versions() -> Iterator[HealthFinding]:
    """Installed packages against the requirements of jaxrl, jax and its plugins."""
    for other in others_of_the_same_name():
        yield _broken("versions", f"{other} installs a package `jaxrl` too", f"pip uninstall {other}")
    wrong = list(
        _unmet((DISTRIBUTION, "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", *_cuda_plugins()))
    )
    for text, requirement in wrong:
        yield _broken("versions", text, f"pip install '{requirement}'")
    if not wrong:
        named = ("jax", "jaxlib", "flax", *_cuda_plugins())
        yield HealthFinding("versions", OK, ", ".join(f"{name} {_installed(name)}" for name in named))


def _unmet(packages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(problem, requirement) for each requirement of the packages that is not met."""
    from packaging.requirements import Requirement

    for package in packages:
        try:
            wanted = importlib.metadata.requires(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, wanted):
            if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
                continue
            name = requirement.name
            version = _installed(name)
            if version is None:
                yield f"{package} needs {name}, which is not installed", str(requirement)
            elif not requirement.specifier.contains(version, prereleases=True):
                accepted = f"{name}{requirement.specifier}"
                yield f"{package} needs {accepted}, installed is {version}", accepted
    # A plugin depends on jaxlib's internals, but requires its version only in an extra.
    jaxlib = _installed("jaxlib")
    for plugin in _cuda_plugins():
        if (version := _installed(plugin)) != jaxlib:
            yield f"{plugin} {version} does not fit jaxlib {jaxlib}", f"{plugin}=={jaxlib}"


def others_of_the_same_name() -> Iterator[str]:
    """Distributions that put files into the package `jaxrl`, beside this one."""
    for other in importlib.metadata.distributions():
        ours = other.name == DISTRIBUTION
        if not ours and any(file.parts[:1] == ("jaxrl",) for file in other.files or ()):
            yield str(other.name)


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cuda_plugins() -> tuple[str, ...]:
    return tuple(name for name in ("jax-cuda12-plugin", "jax-cuda13-plugin") if _installed(name))


def xla_settings() -> HealthFinding:
    """Settings that cost speed, such as XLA_FLAGS; with unknown flags XLA aborts the smoke run."""
    flags = os.environ.get("XLA_FLAGS", "")
    costly = [f"{flag}: {cost}" for flag, cost in _COSTLY_FLAGS.items() if flag in flags]
    costly += [f"{name}: {cost}" for name, cost in _COSTLY.items() if _is_on(os.environ.get(name, ""))]
    shown = [f"XLA_FLAGS={flags}"] if flags else []
    of_jax = ("JAX_", "XLA_PYTHON", "LIBTPU_INIT")
    shown += [f"{name}={x}" for name, x in sorted(os.environ.items()) if name.startswith(of_jax)]
    found = " ".join(shown) or "none set"
    if costly:
        advice = "unset these for training at full speed"
        return HealthFinding("xla flags", WARNING, f"{found} ({'; '.join(costly)})", advice)
    return HealthFinding("xla flags", OK, found)


def driver() -> HealthFinding:
    """The NVIDIA driver, and jax's plugin for it."""
    file = Path("/proc/driver/nvidia/version")
    match = re.search(r"(\d+)\.\d+(\.\d+)?", file.read_text()) if file.exists() else None
    if match is None:
        return _other_accelerators()
    major = int(match.group(1))
    plugins = _cuda_plugins()
    if not plugins:
        extra = "cuda13" if major >= _DRIVERS["cuda13"] else "cuda12"
        text = f"NVIDIA {match.group()}, but jax has no CUDA plugin"
        return _broken("driver", text, installation.command(extra))
    for cuda, oldest in _DRIVERS.items():
        if any(cuda in plugin for plugin in plugins) and major < oldest:
            text = f"NVIDIA {match.group()} is too old for {cuda}, which needs {oldest}"
            other = f", or {installation.command('cuda12')}" if cuda == "cuda13" else ""
            return _broken("driver", text, f"update the driver{other}")
    return HealthFinding("driver", OK, f"NVIDIA {match.group()}")


def _other_accelerators() -> HealthFinding:
    """Without an NVIDIA driver: a TPU, nothing, or GPUs that cannot be used."""
    nodes = [path.name for pattern in ("nvidia[0-9]*", "accel[0-9]*") for path in Path("/dev").glob(pattern)]
    if any(name.startswith("nvidia") for name in nodes):
        text = "GPUs are there, the NVIDIA driver is not loaded"
        return _broken("driver", text, "install or load it; `nvidia-smi` must list the GPUs")
    if not nodes:
        return HealthFinding("driver", OK, "no NVIDIA driver and no GPU")
    if (libtpu := _installed("libtpu")) is None:
        return _broken("driver", "a TPU without libtpu", installation.command("tpu"))
    return HealthFinding("driver", OK, f"libtpu {libtpu}")


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
        advice = "name another folder, or change its owner or mode"
        return _broken(check, f"{place} cannot be written: {error}", advice)
    if free < 0.1 * _GIGABYTE:
        return _broken(check, found, "delete old runs: checkpoints will not fit")
    if free < _GIGABYTE:
        advice = "delete old runs, or keep fewer checkpoints: --config.checkpoint.keep=1"
        return HealthFinding(check, WARNING, found, advice)
    return HealthFinding(check, OK, found)


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
        return _broken("bucket", str(error), installation.command("gcs"))
    except Exception as error:  # Each backend raises its own.
        text = f"{bucket}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return _broken("bucket", text, _bucket_advice(text))
    if not same:
        text = f"{bucket}: an object was not read back as written"
        return _broken("bucket", text, "try another bucket")
    return HealthFinding("bucket", OK, f"{bucket}: written, read and deleted")


def _bucket_advice(text: str) -> str:
    text = text.lower()
    if any(word in text for word in ("404", "not found", "filenotfound")):
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
    stages, problem, advice = smoke_run.in_child(_PROBE_SECONDS)
    if "devices" not in stages:
        yield _broken("devices", f"jax {problem}", advice)
        return
    yield _devices(stages["devices"])
    if "run" not in stages:
        yield _broken("training", f"it {problem}", advice)
        return
    run = stages["run"]
    pace = f"{run['steps_per_second']:,.0f} steps per second of a small network"
    found = f"{pace}, compiled in {run['compile_seconds']:.1f} s"
    if run["finite"]:
        yield HealthFinding("training", OK, found)
    else:
        text = f"{found}; losses are not finite"
        yield _broken("training", text, "unset XLA_FLAGS; try JAX_PLATFORMS=cpu")


def _devices(found: Mapping[str, Any]) -> HealthFinding:
    memory = f" with {size(found['bytes'])} each" if found["bytes"] else ""
    text = f"{found['count']} x {found['kind']}{memory}"
    gpus = list(Path("/dev").glob("nvidia[0-9]*"))
    if found["platform"] == "cpu" and gpus and os.environ.get("JAX_PLATFORMS", "") != "cpu":
        return _broken("devices", f"{text}, though there are GPUs", "see `driver` and `versions`")
    return HealthFinding("devices", OK, text)


def _is_on(value: str) -> bool:
    return value.lower() in ("1", "true", "yes", "on", "t", "y")
