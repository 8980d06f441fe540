"""Trained policies as functions of arrays, their export to files, the check of these files, and serving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl.evaluation.policy_function import PolicyFunction

__all__ = ["PolicyFunction"]


def __getattr__(name: str) -> Any:
    # Not before it is used: a client and a server of arrays need no jax.
    if name == "PolicyFunction":
        from jaxrl.evaluation.policy_function import PolicyFunction

        return PolicyFunction
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
