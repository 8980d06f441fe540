"""Devices, the mesh and how state is laid out on it: the only file that knows them.

Everything inside the compiled program sees one device's share of the environments and an `Axis` for
the few sums that must cross devices. Parameters and statistics are replicated, environments sharded.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrl.config import ConfigError
from jaxrl.types import Array, EpisodeStats, PyTree, TrainState, Trajectory

_AXIS = "data"


@dataclass(frozen=True)
class Axis:
    """The device axis as seen from inside the program; `size` 1 without a name needs no mesh.

    `platform`, such as "cpu", decides between ways to compute the same.
    """

    name: str | None = None
    size: int = 1
    platform: str = "cpu"

    def psum(self, tree: PyTree) -> PyTree:
        """Sums over devices."""
        return tree if self.name is None else jax.lax.psum(tree, self.name)

    def index(self) -> Array | int:
        """This device's position."""
        return 0 if self.name is None else jax.lax.axis_index(self.name)


def available_cores() -> int:
    """The CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def offer_cpu_devices(count: int) -> None:
    """Asks for `count` virtual CPU devices; XLA_FLAGS, or a backend that has started, overrules it."""
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        # JAX refuses once a backend runs, as in a notebook; the devices are then those it has.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", count)


@dataclass(frozen=True)
class Topology:
    """The devices of one training run, as a one-dimensional mesh."""

    mesh: Mesh

    @classmethod
    def of(cls, device_count: int) -> Topology:
        """The first `device_count` devices.

        Raises:
          ConfigError: there are fewer.
        """
        if device_count > jax.device_count():
            found = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
            raise ConfigError(f"`num_devices` (={device_count}) is more than this machine has: {found}")
        devices = np.array(jax.devices()[:device_count])
        return cls(Mesh(devices, (_AXIS,), axis_types=(AxisType.Auto,)))

    @property
    def axis(self) -> Axis:
        return Axis(_AXIS, self.mesh.size, self.mesh.devices.flat[0].platform)

    @property
    def description(self) -> str:
        """For people: `2 x cpu`, `8 x TPU v4`."""
        return f"{self.mesh.size} x {self.mesh.devices.flat[0].device_kind}"

    def shard(self, fn: Callable[..., Any], in_specs: Any, out_specs: Any, donate: bool = False) -> Any:
        """Jits `fn` as one program over the mesh; `donate` gives up its first argument's buffers."""
        # check_vma=False: gradients are summed by our own single psum per minibatch; with the check on,
        # JAX would insert a psum of its own for every replicated parameter.
        mapped = jax.shard_map(fn, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
        shardings = jax.tree.map(
            lambda spec: NamedSharding(self.mesh, spec), out_specs, is_leaf=lambda x: isinstance(x, P)
        )
        return jax.jit(mapped, out_shardings=shardings, donate_argnums=(0,) if donate else ())

    def abstract(self, tree: PyTree, specs: PyTree) -> PyTree:
        """Shapes, dtypes and shardings of `tree`, for compiling and for restoring checkpoints."""

        def leaves(spec: P, part: PyTree) -> PyTree:
            sharding = NamedSharding(self.mesh, spec)
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), part)

        return jax.tree.map(leaves, specs, tree, is_leaf=lambda x: isinstance(x, P))

    def replicate(self, tree: PyTree) -> PyTree:
        """Puts host values on every device."""
        return jax.device_put(tree, NamedSharding(self.mesh, P()))


def is_first() -> bool:
    """Whether this process is the one that acts for all, on files that they share."""
    return jax.process_index() == 0


def everywhere(value: Any) -> list[Any]:
    """The JSON-compatible `value` of each process, in order. All must call it: they wait for each other."""
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = multihost_utils.process_allgather(np.array(text.size)).reshape(-1)
    padded = np.pad(text, (0, int(lengths.max()) - text.size))
    rows = multihost_utils.process_allgather(padded).reshape(len(lengths), -1)
    return [json.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]


def to_host(tree: PyTree) -> PyTree:
    """Whole arrays in host memory, on every process; all must call it, with parts of the same arrays.

    On CPU these may be views of the devices' buffers: use them before those are donated.
    """

    def whole(x: Any) -> Any:
        if not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated:
            return x
        return multihost_utils.process_allgather(x, tiled=True)

    return jax.device_get(jax.tree.map(whole, tree))


# As prefixes of the trees: one spec per field.
REPLICATED: Any = P()
SHARDED: Any = P(_AXIS)
_TIME_MAJOR: Any = P(None, _AXIS)

STATE_SPECS = TrainState(
    params=REPLICATED,
    opt_state=REPLICATED,
    env_state=SHARDED,
    obs=SHARDED,
    reset=SHARDED,
    carry=SHARDED,
    episode=EpisodeStats(SHARDED, SHARDED, SHARDED),
    obs_stats=REPLICATED,
    reward_stats=REPLICATED,
    discounted_return=SHARDED,
    hyperparams=REPLICATED,
    key=REPLICATED,
    iteration=REPLICATED,
    updates=REPLICATED,
)

TRAJECTORY_SPECS = Trajectory(
    obs=_TIME_MAJOR,
    reset=_TIME_MAJOR,
    action=_TIME_MAJOR,
    action_mask=_TIME_MAJOR,
    log_prob=_TIME_MAJOR,
    value=_TIME_MAJOR,
    reward=_TIME_MAJOR,
    terminated=_TIME_MAJOR,
    truncated=_TIME_MAJOR,
    bootstrap_value=_TIME_MAJOR,
    carry=_TIME_MAJOR,
    last_value=SHARDED,
    valid=_TIME_MAJOR,
)
