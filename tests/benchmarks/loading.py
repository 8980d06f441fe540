"""The programs of `benchmarks/`, which is no package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    """Runs `benchmarks/NAME.py` as a module; where it looks for others is forgotten."""
    spec = importlib.util.spec_from_file_location(f"benchmarks.{name}", ROOT / f"benchmarks/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module
