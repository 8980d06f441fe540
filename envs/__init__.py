"""Environments: contracts, suites, wrappers and batching. Imports nothing else of `jaxrl`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if __name__ != "jaxrl.envs":
    # Under a second name there would be a second set of classes, incompatible with the first.
    raise ImportError(f"the environments are imported as `jaxrl.envs`, not as `{__name__}`")

if TYPE_CHECKING:
    from jaxrl.envs.registry import make as make
    from jaxrl.envs.registry import make_host as make_host
    from jaxrl.envs.registry import register as register


def __getattr__(name: str) -> Any:
    # Loaded when first used: what needs no jax, such as `jaxrl.envs.installation`, is imported without it.
    if name not in ("make", "make_host", "register"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jaxrl.envs import registry

    return getattr(registry, name)
