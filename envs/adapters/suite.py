"""Import, keys and promotion of types, for the adapters of all suites written in JAX."""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs import installation

# `EnvSpec.reset_ratio` of suites whose resets cost more than their steps: about the steps of an episode.
EXPENSIVE_RESETS = 64


def load(module: str, suite: str) -> ModuleType:
    """Imports a module; ImportError, one line, if the suite or what it needs is missing, or does not fit."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about packages of the suite's own
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{suite}: environments need its package: {installation.command(suite)} ({error})"
        ) from error
    except Exception as error:  # whatever its code makes of the versions that it meets
        raise ImportError(f"{suite}: {installation.misfit(module.partition('.')[0], error)}") from error


@contextlib.contextmanager
def implicit_promotion() -> Iterator[None]:
    """Suites add integers to floats and vectors to scalars, also where the program around them may not."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@contextlib.contextmanager
def suite_rules() -> Iterator[None]:
    """The same, and without the warnings that the suite's own code gives."""
    with implicit_promotion(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def refusals(label: str, kwargs: Mapping[str, Any], *errors: type[Exception]) -> Iterator[None]:
    """`suite_rules`, in which such errors of the suite become a ValueError of one line."""
    try:
        with suite_rules():
            yield
    except errors as error:
        raise ValueError(f"{label} refuses {dict(kwargs)}: {' '.join(str(error).split())}") from error


def like(label: str, value: Any, default: Any) -> Any:
    """Converts `value` to the type of `default`; ValueError, which begins with `label`, if it would lose."""
    if isinstance(default, jax.Array):
        return jnp.asarray(value, default.dtype)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(default, tuple | list) and isinstance(value, tuple | list):
        return type(default)(value)
    if type(value) is not type(default):
        raise ValueError(f"{label} (={value!r}) must be of type {type(default).__name__}, like {default!r}")
    return value


def raw_key(key: jax.Array) -> jax.Array:
    """uint32[2], the kind of key that suites are written for."""
    return jax.random.key_data(key)


def numbers(info: Mapping[str, Any]) -> dict[str, jax.Array]:
    """float32[] of each entry that is one number or bool."""
    found = {k: jnp.asarray(x) for k, x in info.items() if hasattr(x, "dtype") or isinstance(x, int | float)}
    kinds = (jnp.bool_, jnp.number)
    are_numbers = {
        k: x.shape == () and any(jnp.issubdtype(x.dtype, kind) for kind in kinds) for k, x in found.items()
    }
    return {k: x.astype(jnp.float32) for k, x in found.items() if are_numbers[k]}


@contextlib.contextmanager
def deferred_imports(*names: str) -> Iterator[None]:
    """Gives imports inside the block stand-ins for the modules `names`, which load them when they are used.

    gymnax imports seaborn and matplotlib for its drawings: 1.9 of the 2.2 seconds that its import takes.
    Modules that are loaded already stay as they are, and imports after the block see the real ones. A package
    is named before the modules in it, as `a`, `a.b`: `import a.b` imports both.
    """
    standins = {name: _StandIn(name) for name in names if name not in sys.modules}
    sys.modules.update(standins)
    for name, standin in standins.items():
        package, _, attribute = name.rpartition(".")
        if package in standins:
            setattr(standins[package], attribute, standin)
    try:
        yield
    finally:
        for name, standin in standins.items():
            if sys.modules.get(name) is standin:
                del sys.modules[name]


class _StandIn(ModuleType):
    def __getattr__(self, attribute: str) -> Any:
        # The machinery of imports and `inspect` ask any module for such names; that is no use of it.
        if attribute.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        parts = self.__name__.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if isinstance(sys.modules.get(name), _StandIn):
                del sys.modules[name]
        return getattr(importlib.import_module(self.__name__), attribute)
