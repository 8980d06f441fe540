"""How tests compile: XLA's flags, and where compiled programs are kept. Imports no jax."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# Tests compile far more than they compute: without LLVM's optimisations, and without the emitters of fusions
# that go through MLIR (`EXTRA`), they take a third of the time. The others contract a product and a sum here
# and not there, so that equal rows of two programs would differ in the last bit: no such instructions. A
# program in one part: the cores are taken by other tests already.
FLAGS = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_max_isa": "AVX",
    "xla_cpu_parallel_codegen_split_count": 1,
    # What the environment sets, jaxrl leaves out of its own options: tests trace its programs inside others,
    # where jax takes none.
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_REDUCE",
}
# XLA ignores one that it does not know.
EXTRA = "xla_cpu_disable_new_fusion_emitters"

_ASK = """
import json, sys
import jax
from jaxrl.parallel import compilation

print(json.dumps(compilation.options(jax.devices()[0], json.loads(sys.argv[1]))))
"""


def apply() -> None:
    """Sets the environment of this process, and of those that tests start, before jax is imported."""
    # Also if Python is told to keep no compiled modules: without them each process that a test starts takes a
    # second more, and pytest rewrites the assertions of 400 files in every run.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    folder = _cache() / importlib.metadata.version("jaxlib")
    folder.mkdir(parents=True, exist_ok=True)
    if "XLA_FLAGS" not in os.environ:
        flags = [f"--{name}={value}" for name, value in _known(folder).items()]
        os.environ["XLA_FLAGS"] = " ".join([*flags, f"--xla_backend_extra_options={EXTRA}"])
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.02")


def _cache() -> Path:
    """A folder that outlives the checkout: a fresh clone finds what an earlier one compiled."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxrl" / "tests"


def _known(folder: Path) -> Mapping[str, object]:
    """Those of `FLAGS` that this XLA has, asked once: an unknown one in XLA_FLAGS ends a process."""
    answer = folder / "flags.json"
    asked = json.dumps(FLAGS)
    if answer.exists() and (found := json.loads(answer.read_text()))["asked"] == asked:
        return found["known"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    process = subprocess.run(
        [sys.executable, "-c", _ASK, asked], env=environment, capture_output=True, text=True, check=True
    )
    known = json.loads(process.stdout)
    part = folder / f"flags.{os.getpid()}"
    part.write_text(json.dumps({"asked": asked, "known": known}))
    part.replace(answer)
    return known
