"""Checkpoints of the whole training state, through Orbax; local folders and gs://.

A checkpoint of step S is the folder `<folder>/S` with two items: `state`, arrays by field and path, and
`meta`, JSON. Arrays are stored under their paths, not as the Python objects that held them, so that a
checkpoint does not depend on the classes of an environment or of the optimiser.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from etils import epath

from jaxrl.config import ConfigError
from jaxrl.types import PyTree

_STATE, _META, _SCORE = "state", "meta", "score"


class CheckpointError(ConfigError):
    """A checkpoint is missing or does not fit; one line for the user."""


class Checkpointer:
    """Saves and restores checkpoints of one run; keeps the last few and the one with the best score."""

    def __init__(self, folder: str, keep: int = 1, create: bool = True) -> None:
        """Opens `folder`.

        Args:
          folder: a local path, absolute or relative to the working folder, or gs://bucket/path.
          keep: how many of the latest checkpoints to keep, besides the best.
          create: whether to make a missing folder.

        Raises:
          CheckpointError: the folder is missing and may not be made, or cannot be.
        """
        self._folder = epath.Path(folder)
        if not folder.startswith("gs://"):
            self._folder = self._folder.absolute()  # Orbax refuses relative paths.
        if not create and not self._folder.is_dir():
            raise CheckpointError(f"no checkpoints: there is no folder {self._folder}")
        _silence_orbax()
        try:
            self._manager = _manager(self._folder, keep, create)
        except OSError as error:
            raise CheckpointError(f"checkpoints cannot go to {self._folder}: {error}") from error

    def save(self, step: int, state: PyTree, meta: Mapping[str, Any], score: float | None = None) -> bool:
        """Starts saving and returns once the arrays may be changed, so `state` may be donated at once.

        Args:
          step: environment steps made.
          state: a dataclass or mapping of trees of arrays, such as `TrainState`.
          meta: JSON-compatible values to be restored with it.
          score: what "best" means: the greedy evaluation return; None where it was not evaluated.

        Returns:
          Whether anything was saved: False where this very step already is.

        Raises:
          CheckpointError: the folder holds a later step, so this one would never be found.
        """
        import orbax.checkpoint as ocp

        latest = self.latest_step()
        if step == latest:
            return False
        if score is not None and not math.isfinite(score):
            score = None
        arrays = {name: _storable(tree) for name, tree in _fields(state).items()}
        items = ocp.args.Composite(
            **{
                _STATE: ocp.args.PyTreeSave({name: tree for name, tree in arrays.items() if tree}),
                _META: ocp.args.JsonSave(dict(meta)),
            }
        )
        # Orbax copies to host memory before it returns; on CPU it holds references instead, which make
        # XLA copy rather than reuse a donated buffer (see the donation test).
        if not self._manager.save(step, args=items, metrics={_SCORE: score}):
            # Orbax says no more than False, and loses the checkpoint.
            raise CheckpointError(f"step {step} was not saved: {self._folder} already holds step {latest}")
        return True

    def all_steps(self) -> tuple[int, ...]:
        """Steps that can be restored, ascending; one that is still being written included."""
        return tuple(sorted(self._manager.all_steps()))

    def latest_step(self) -> int | None:
        """The latest step, None without checkpoints."""
        return self._manager.latest_step()

    def best_step(self) -> int | None:
        """The step with the highest score (the latest of equals), None where none has a score."""
        self.wait()  # Scores are read from the folder.
        step = self._manager.best_step()
        return None if step is None or _score(self._manager.metrics(step)) == -math.inf else step

    def meta(self, step: int) -> dict[str, Any]:
        """The `meta` that was saved with `step`.

        Raises:
          CheckpointError: there is no such step.
        """
        import orbax.checkpoint as ocp

        self._require(step)
        return self._manager.restore(step, args=ocp.args.Composite(**{_META: ocp.args.JsonRestore()}))[_META]

    def restore(self, step: int, abstract_state: PyTree) -> tuple[PyTree, dict[str, Any]]:
        """Restores everything, onto whatever devices `abstract_state` asks for.

        Args:
          step: one of `all_steps()`.
          abstract_state: a tree like the saved state of `jax.ShapeDtypeStruct`, typed keys included, with
            shardings; without one an array goes to the default device.

        Returns:
          (state, meta).

        Raises:
          CheckpointError: there is no such step, or its arrays differ in name, shape or dtype.
        """
        fields = _fields(abstract_state)
        self._check(step, fields, every=True)
        restored = self._restore(step, fields)
        if dataclasses.is_dataclass(abstract_state):
            return dataclasses.replace(abstract_state, **restored), self.meta(step)  # type: ignore[type-var]
        return restored, self.meta(step)

    def restore_partial(self, step: int, names: Sequence[str], abstract: PyTree) -> dict[str, PyTree]:
        """Restores only the fields `names`, for example ("params", "obs_stats"); the rest is not read.

        Args:
          step: one of `all_steps()`.
          names: fields of the saved state.
          abstract: as for `restore`; fields that are not named may be missing.

        Raises:
          CheckpointError: as for `restore`.
        """
        available = _fields(abstract)
        fields = {name: available[name] for name in names}
        self._check(step, fields, every=False)
        return self._restore(step, fields)

    def wait(self) -> None:
        """Blocks until everything is written; raises what went wrong while writing."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Finishes writing and releases the threads."""
        self._manager.close()

    def _restore(self, step: int, fields: Mapping[str, PyTree]) -> dict[str, PyTree]:
        import orbax.checkpoint as ocp

        asked = {name: arrays for name, tree in fields.items() if (arrays := _asked(tree))}
        restored: Mapping[str, Any] = {}
        if asked:
            args = ocp.args.PyTreeRestore(
                asked,
                restore_args=ocp.checkpoint_utils.construct_restore_args(asked),
                partial_restore=True,
            )
            restored = self._manager.restore(step, args=ocp.args.Composite(**{_STATE: args}))[_STATE]
        return {name: _rebuilt(tree, restored.get(name, {})) for name, tree in fields.items()}

    def _require(self, step: int) -> None:
        steps = self.all_steps()
        if step not in steps:
            known = ", ".join(str(s) for s in steps) or "none"
            raise CheckpointError(f"no checkpoint of step {step} in {self._folder}; available steps: {known}")
        self.wait()

    def _check(self, step: int, fields: Mapping[str, PyTree], every: bool) -> None:
        """Compares names, shapes and dtypes: Orbax would cast in silence, or fail with pages of trees."""
        self._require(step)
        stored = {
            f"{name}/{path}": f"{array.dtype}{list(array.shape)}"
            for name, tree in self._manager.item_metadata(step)[_STATE].tree.items()
            for path, array in tree.items()
            if every or name in fields
        }
        asked = {
            f"{name}/{path}": f"{array.dtype}{list(array.shape)}"
            for name, tree in fields.items()
            for path, array in _asked(tree).items()
        }
        for name in sorted(stored.keys() | asked.keys()):
            held, wanted = stored.get(name, "absent"), asked.get(name, "absent")
            if held != wanted:
                raise CheckpointError(
                    f"the checkpoint of step {step} in {self._folder} does not fit: "
                    f"{name} is {held} there and {wanted} in this configuration"
                )


def _manager(folder: epath.Path, keep: int, create: bool) -> Any:
    # Imported when needed: it takes as long as jax itself, and `--help` should not wait for it.
    import orbax.checkpoint as ocp
    from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

    return ocp.CheckpointManager(
        folder,
        options=ocp.CheckpointManagerOptions(
            create=create,
            best_fn=_score,
            preservation_policy=AnyPreservationPolicy(
                [LatestN(keep), BestN(get_metric_fn=_score, n=1, keep_checkpoints_without_metrics=False)]
            ),
        ),
        item_handlers={_STATE: ocp.PyTreeCheckpointHandler(), _META: ocp.JsonCheckpointHandler()},
    )


def _score(metrics: Mapping[str, float | None]) -> float:
    score = metrics[_SCORE]
    return -math.inf if score is None else score


def _fields(state: PyTree) -> dict[str, PyTree]:
    if isinstance(state, Mapping):
        return dict(state)
    return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}


def _named(tree: PyTree) -> list[tuple[str, Any]]:
    """(path, leaf) of each leaf; the path of a random key ends with its implementation."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        named.append((f"{name}:{_key_impl(leaf)}" if _is_key(leaf) else name, leaf))
    if len(dict(named)) != len(named):
        raise ValueError("two leaves of the state have the same path: a dictionary key contains '/'")
    return named


def _storable(tree: PyTree) -> dict[str, Any]:
    """Arrays by path: keys as their uint32 data, empty arrays (which Orbax refuses) left out."""
    return {name: jax.random.key_data(x) if _is_key(x) else x for name, x in _named(tree) if x.size}


def _asked(tree: PyTree) -> dict[str, jax.ShapeDtypeStruct]:
    """What `_storable` returns, for an abstract tree; every array gets a sharding."""
    asked = {}
    for name, x in _named(tree):
        data = jax.eval_shape(jax.random.key_data, x) if _is_key(x) else x
        if x.size:
            asked[name] = jax.ShapeDtypeStruct(data.shape, data.dtype, sharding=_sharding(x))
    return asked


def _rebuilt(abstract: PyTree, arrays: Mapping[str, jax.Array]) -> PyTree:
    """The tree `abstract` with its arrays."""

    def leaf(name: str, x: jax.ShapeDtypeStruct) -> jax.Array:
        if not x.size:
            return jnp.zeros(x.shape, x.dtype, device=_sharding(x))
        return jax.random.wrap_key_data(arrays[name], impl=_key_impl(x)) if _is_key(x) else arrays[name]

    return jax.tree.unflatten(jax.tree.structure(abstract), [leaf(name, x) for name, x in _named(abstract)])


def _sharding(x: Any) -> jax.sharding.Sharding:
    return getattr(x, "sharding", None) or jax.sharding.SingleDeviceSharding(jax.devices()[0])


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _key_impl(key: Any) -> str:
    """Name of the random number generator, also of an abstract key."""
    found: list[str] = []
    jax.eval_shape(lambda key: found.append(str(jax.random.key_impl(key))), key)
    return found[0]


class _NoOrbaxChatter(logging.Filter):
    """Drops what Orbax says about a save that goes well."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or "orbax" not in record.pathname


def _silence_orbax() -> None:
    logger = logging.getLogger("absl")
    if not any(isinstance(f, _NoOrbaxChatter) for f in logger.filters):
        logger.addFilter(_NoOrbaxChatter())
