"""What tests of collecting from a recorded host environment share; `device` in conftest.py plays it."""

from __future__ import annotations

import threading

import jax

T, B, L = 16, 8, 4


def keys_of(iteration: int) -> jax.Array:
    """Of the actions of an iteration's rollout."""
    return jax.random.split(jax.random.key(iteration), B)


def actors() -> list[threading.Thread]:
    """The threads that collect."""
    return [t for t in threading.enumerate() if t.name == "actor"]
