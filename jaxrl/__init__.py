"""Recurrent PPO in one compiled program: `jaxrl.make_train`, `jaxrl.Trainer`, `jaxrl.default_config`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl.config import default_config
    from jaxrl.training.functional import make_train
    from jaxrl.training.trainer import Trainer

__version__ = "0.1.0"
__all__ = ["Trainer", "__version__", "default_config", "make_train"]

# Loaded when first used: the command line must answer bad input before jax is imported.
_HOMES = {
    "Trainer": "jaxrl.training.trainer",
    "default_config": "jaxrl.config",
    "make_train": "jaxrl.training.functional",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
