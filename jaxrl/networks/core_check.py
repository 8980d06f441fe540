"""A check of cores: what acting and learning rely on, and what fails without an error if it is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.envs import modules
from jaxrl.networks.core import Core
from jaxrl.networks.cores import build_core, constructor
from jaxrl.types import Array, PyTree

# Steps, environments, features; episodes begin at `_RESET` in the first two environments, never in the third.
_LENGTH = 9
_ENVS = 3
_FEATURES = 5
_RESET = 4
# Small sizes for a core that is given by name or as a class; the memory is shorter than the sequence.
_SMALL = NetworkConfig(core_size=16, memory_length=4)
# Relative to the larger of 1 and the largest number of an array: in float32, of gradients, in bfloat16.
_TOLERANCE = 1e-4
_OF_GRADIENTS = 1e-3
_ROUNDED = 0.1


class _Fault(Exception):
    """The message is one line that says what is wrong with which core."""


class _Inputs(NamedTuple):
    """Arguments of a core, and the gradient of a loss with respect to what it returns [L, N, H]."""

    params: PyTree
    x: Array
    carry: PyTree
    reset: Array
    dy: Array


class _Results(NamedTuple):
    """The outputs of a core, and gradients with respect to its parameters, its input and its carry."""

    y: np.ndarray
    carry: PyTree
    params: PyTree
    dx: np.ndarray
    dcarry: PyTree


def check_core(core: Core | type[Core] | str) -> None:
    """Checks a custom recurrent core.

    Its carry, dtypes and shapes; that a sequence with episodes inside gives what its steps give one after the
    other, values and gradients; that nothing, NaN included, reaches an episode from the one before or from
    another environment, and no gradient the other way; and, if it has a field `dtype`, that it computes in
    bfloat16 with a float32 carry.

    Args:
      core: the core, its class, or its name as in `network.core`.

    Raises:
      ValueError: one line that names the core and what is wrong.
    """
    label = core if isinstance(core, str) else getattr(core, "__name__", type(core).__name__)
    try:
        made = _core_of(label, core)
        shape = _check_carry(label, made)
        _Check(label, made, shape).run()
    except (ConfigError, _Fault) as error:
        raise ValueError(str(error)) from error
    except Exception as error:
        raise ValueError(f"core {label} raised {modules.one_line(error)}") from error


def _core_of(label: str, core: Core | type[Core] | str) -> Core:
    if isinstance(core, str):
        return build_core(dataclasses.replace(_SMALL, core=core))
    made = constructor(f"core {label}", core)(_SMALL) if isinstance(core, type) else core
    if not isinstance(made, Core) or not hasattr(made, "waits_for_the_carry"):
        raise _Fault(f"core {label} must be a jaxrl.networks.Core that declares `waits_for_the_carry`")
    return made


def _check_carry(label: str, core: Core) -> PyTree:
    """The shapes of the first carry of `_ENVS` environments."""
    carry = core.initial_carry(_ENVS)
    for path, x in jax.tree_util.tree_leaves_with_path(carry):
        name = f"core {label}: `initial_carry` returns {jax.tree_util.keystr(path)}"
        if not hasattr(x, "dtype") or x.dtype != jnp.float32:
            raise _Fault(f"{name} of {getattr(x, 'dtype', type(x).__name__)}, not float32")
        if x.shape[:1] != (_ENVS,):
            raise _Fault(f"{name} {list(x.shape)} for {_ENVS} environments: they must come first")
        if (np.asarray(x) != 0).any():
            raise _Fault(f"{name} with numbers other than 0: a reset makes zeros")
    return jax.eval_shape(lambda: carry)


class _Check:
    """The checks of one core that run it."""

    def __init__(self, label: str, core: Core, carry: PyTree):
        self._label = label
        self._core = core
        self._carry = carry
        rng = np.random.default_rng(0)
        self._normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
        self._sequence = jax.jit(self._of_sequence)
        self._steps = jax.jit(self._of_steps)

    def run(self) -> None:
        """Raises _Fault at the first thing that is wrong."""
        inputs = self._begin()
        found = self._results(inputs)
        for name, x in (("", found.y), ("a carry of ", found.carry)):
            if not _finite(x):
                self._fail(f"returns {name}NaN or infinite numbers for ordinary input")
        if not _finite((found.params, found.dx, found.dcarry)):
            self._fail("has gradients that are NaN or infinite for ordinary input")
        self._compare_steps(inputs, found)
        self._change_what_was_before(inputs, found)
        self._change_another_environment(inputs, found)
        self._require_fresh_start(inputs, found)
        self._require_no_gradient_across(inputs)
        if any(f.name == "dtype" for f in dataclasses.fields(self._core)):
            self._compute_in_bfloat16(inputs, found)

    def _begin(self) -> _Inputs:
        x = self._normal(_LENGTH, _ENVS, _FEATURES)
        zeros = self._core.initial_carry(_ENVS)
        reset = jnp.zeros((_LENGTH, _ENVS), bool).at[_RESET, :2].set(True).at[0, 0].set(True)
        params = jax.jit(self._core.init)(jax.random.key(0), x, zeros, reset)
        y, carry = jax.eval_shape(self._core.apply, params, x, zeros, reset)
        if {str(p.dtype) for p in jax.tree.leaves(params)} - {"float32"}:
            self._fail("has parameters that are not float32")
        self._require_shapes(y, carry)
        # A carry as acting leaves it, not zeros, so that it matters.
        _, carry = jax.jit(self._core.apply)(params, self._normal(*x.shape), zeros, jnp.zeros_like(reset))
        return _Inputs(params, x, carry, reset, dy=self._normal(*y.shape))

    def _require_shapes(self, y: Any, carry: PyTree) -> None:
        if y.ndim != 3 or y.shape[:2] != (_LENGTH, _ENVS) or not jnp.issubdtype(y.dtype, jnp.floating):
            self._fail(f"returns {y.dtype}{list(y.shape)}, not floats of [steps, environments, features]")
        if jax.tree.structure(carry) != jax.tree.structure(self._carry):  # type: ignore[operator]
            self._fail("returns a carry with other parts than `initial_carry`")
        leaves = jax.tree_util.tree_leaves_with_path(carry)
        for (path, got), given in zip(leaves, jax.tree.leaves(self._carry), strict=True):
            if (got.shape, got.dtype) != (given.shape, given.dtype):
                self._fail(
                    f"returns a carry with {jax.tree_util.keystr(path)} {got.dtype}{list(got.shape)}, but "
                    f"`initial_carry` has {given.dtype}{list(given.shape)}"
                )

    def _compare_steps(self, inputs: _Inputs, found: _Results) -> None:
        steps = self._results(inputs, self._steps)
        if not _close(found.y, steps.y):
            t = int(np.argmax(_distance(found.y, steps.y).max(axis=(1, 2)) > _TOLERANCE))
            self._fail(
                f"returns something else at step {t} of a sequence than when run step by step: acting "
                "and learning would differ"
            )
        if not _close(found.carry, steps.carry):
            self._fail("returns another carry after a sequence than after its steps one by one")
        for name, of in (("parameters", "params"), ("input", "dx"), ("carry", "dcarry")):
            if not _close(getattr(found, of), getattr(steps, of), _OF_GRADIENTS):
                self._fail(f"has other gradients of its {name} over a sequence than over its steps")

    def _change_what_was_before(self, inputs: _Inputs, found: _Results) -> None:
        for value in (1.0, jnp.nan):
            x = inputs.x.at[:_RESET, :2].add(value)
            carry = jax.tree.map(lambda x, value=value: x.at[:2].add(value), inputs.carry)
            y = self._results(inputs._replace(x=x, carry=carry)).y
            if not np.array_equal(y[_RESET:, :2], found.y[_RESET:, :2]):
                what = "NaN of" if jnp.isnan(value) else "something of"
                hint = ": select with `where`, 0 * NaN is NaN" if jnp.isnan(value) else ""
                self._fail(f"lets {what} an episode reach the next one, after `reset`{hint}")
            if not np.array_equal(y[:, 2], found.y[:, 2]):
                self._fail("lets an environment see another one")

    def _change_another_environment(self, inputs: _Inputs, found: _Results) -> None:
        x = inputs.x.at[:, 2].add(1.0)
        reset = inputs.reset.at[:, 2].set(True)
        y = self._results(inputs._replace(x=x, reset=reset)).y
        if not np.array_equal(y[:, :2], found.y[:, :2]):
            self._fail("lets an environment see another one")

    def _require_fresh_start(self, inputs: _Inputs, found: _Results) -> None:
        """An episode inside a sequence is one that begins with the first carry."""
        carry, reset = jax.tree.map(jnp.zeros_like, (inputs.carry, inputs.reset))
        x = jnp.roll(inputs.x, -_RESET, axis=0)
        y = self._results(inputs._replace(x=x, carry=carry, reset=reset)).y
        if not _close(found.y[_RESET:, :2], y[: _LENGTH - _RESET, :2]):
            self._fail("does not begin an episode inside a sequence as it begins with the first carry")

    def _require_no_gradient_across(self, inputs: _Inputs) -> None:
        dy = inputs.dy.at[:_RESET].set(0.0)
        found = self._results(inputs._replace(dy=dy))
        crossing = [found.dx[:_RESET, :2], *(x[:2] for x in jax.tree.leaves(found.dcarry))]
        if any((np.asarray(x) != 0).any() for x in crossing):
            self._fail("lets a gradient of an episode reach the one before, across `reset`")

    def _compute_in_bfloat16(self, inputs: _Inputs, found: _Results) -> None:
        half = self._core.clone(dtype=jnp.bfloat16)
        x = inputs.x.astype(jnp.bfloat16)
        y, carry = jax.jit(half.apply)(inputs.params, x, inputs.carry, inputs.reset)
        if y.dtype != jnp.bfloat16:
            self._fail(f"returns {y.dtype} with dtype bfloat16")
        if any(x.dtype != jnp.float32 for x in jax.tree.leaves(carry)):
            self._fail("returns a carry that is not float32 with dtype bfloat16")
        if not _close(np.asarray(y, np.float32), np.asarray(found.y, np.float32), _ROUNDED):
            self._fail("returns something else in bfloat16 than in float32, by more than rounding")

    def _fail(self, what: str) -> None:
        raise _Fault(f"core {self._label} {what}")

    def _results(self, inputs: _Inputs, program: Any = None) -> _Results:
        return _Results(*jax.device_get((program or self._sequence)(*inputs)))

    def _of_sequence(self, params: PyTree, x: Array, carry: PyTree, reset: Array, dy: Array) -> PyTree:
        def run(params: PyTree, x: Array, carry: PyTree) -> PyTree:
            y, after = self._core.apply(params, x, carry, reset)
            return y.astype(jnp.float32), after

        return _with_gradients(run, dy, params, x, carry)

    def _of_steps(self, params: PyTree, x: Array, carry: PyTree, reset: Array, dy: Array) -> PyTree:
        def run(params: PyTree, x: Array, carry: PyTree) -> PyTree:
            def step(carry: PyTree, xs: PyTree) -> PyTree:
                y, after = self._core.apply(params, xs[0][None], carry, xs[1][None])
                return after, y[0].astype(jnp.float32)

            after, y = jax.lax.scan(step, carry, (x, reset))
            return y, after

        return _with_gradients(run, dy, params, x, carry)


def _with_gradients(run: Any, dy: Array, *arguments: PyTree) -> tuple[PyTree, ...]:
    (y, after), backwards = jax.vjp(run, *arguments)
    return (y, after, *backwards((dy, jax.tree.map(jnp.zeros_like, after))))


def _finite(tree: PyTree) -> bool:
    return all(np.isfinite(x).all() for x in jax.tree.leaves(tree))


def _distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.abs(x - y) / max(float(np.abs(y).max(initial=0.0)), 1.0)


def _close(x: PyTree, y: PyTree, tolerance: float = _TOLERANCE) -> bool:
    pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    return all((_distance(a, b) <= tolerance).all() for a, b in pairs)
