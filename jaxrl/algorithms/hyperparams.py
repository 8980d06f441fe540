"""Numeric hyperparameters: float32 scalars and pytree leaves, so that a sweep can vmap over them."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import jax.numpy as jnp

from jaxrl.config import AlgorithmConfig

_T = TypeVar("_T")


def read_hyperparams(kind: type[_T], section: AlgorithmConfig) -> _T:
    """The fields of a section that a dataclass has too.

    Args:
      kind: the dataclass, of `flax.struct`, whose fields have the names of those of the section.
      section: of an algorithm. A number that may be None (no stop, no limit) is infinity then.
    """

    def scalar(value: Any) -> Any:
        return jnp.float32(jnp.inf if value is None else value)

    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    return kind(**{field.name: scalar(getattr(section, field.name)) for field in fields})
