"""The device mesh and the layout of all state on it: the only file that makes shardings.

Code inside the compiled program sees one device's share of the environments, and an `Axis` for the few
sums that cross devices. Parameters and statistics are replicated, environments are sharded.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrl.config import ConfigError
from jaxrl.parallel import compilation
from jaxrl.parallel.gpus import runs_triton
from jaxrl.types import Array, Axis, PyTree, Sharded, marks

_AXIS = "data"

_T = TypeVar("_T")


@dataclass(frozen=True)
class Topology:
    """The devices of one training run, as a one-dimensional mesh."""

    mesh: Mesh

    @classmethod
    def of(cls, device_count: int) -> Topology:
        """The first `device_count` devices, the same number from each process.

        Raises:
          ConfigError: there are fewer, or the processes cannot have equally many.
        """
        if device_count > jax.device_count():
            found = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
            raise ConfigError(f"`num_devices` (={device_count}) is more than this machine has: {found}")
        processes = jax.process_count()
        if device_count % processes:
            raise ConfigError(
                f"`num_devices` (={device_count}) must be a multiple of the {processes} processes"
            )
        of_each = [jax.local_devices(process)[: device_count // processes] for process in range(processes)]
        return cls.on(np.concatenate(of_each))

    @classmethod
    def on(cls, devices: Any) -> Topology:
        """A mesh of these devices, which may only be descriptions to compile for."""
        return cls(Mesh(np.asarray(devices), (_AXIS,), axis_types=(AxisType.Auto,)))

    @property
    def axis(self) -> Axis:
        device = self.mesh.devices.flat[0]
        return Axis(_AXIS, self.mesh.size, device.platform, runs_triton(device))

    @property
    def description(self) -> str:
        """The devices in words: `2 x cpu`, `8 x TPU v4 in 2 processes`."""
        devices = f"{self.mesh.size} x {self.mesh.devices.flat[0].device_kind}"
        return devices if jax.process_count() == 1 else f"{devices} in {jax.process_count()} processes"

    def shard(
        self, fn: Callable[..., Any], in_specs: Any, out_specs: Any, donate: bool = False, brief: bool = False
    ) -> Any:
        """Jits `fn` as one program over the mesh.

        Args:
          in_specs, out_specs: how its arguments and results are laid out on the devices.
          donate: donates the buffers of its first argument.
          brief: compiles quickly what runs briefly.
        """
        mapped = shard_map(fn, self.mesh, in_specs, out_specs)
        shardings = jax.tree.map(
            lambda spec: NamedSharding(self.mesh, spec), out_specs, is_leaf=lambda x: isinstance(x, P)
        )
        return jax.jit(
            mapped,
            out_shardings=shardings,
            donate_argnums=(0,) if donate else (),
            compiler_options=self._compiler_options(brief),
        )

    def _compiler_options(self, brief: bool) -> dict[str, Any]:
        device = self.own_device or self.mesh.devices.flat[0]
        return compilation.options(device, compilation.flags(device.platform, self.mesh.size, brief))

    def abstract(self, tree: PyTree, specs: PyTree) -> PyTree:
        """Shapes, dtypes and shardings of `tree`, for compiling and for restoring checkpoints."""

        def leaves(spec: P, part: PyTree) -> PyTree:
            sharding = NamedSharding(self.mesh, spec)
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), part)

        return jax.tree.map(leaves, specs, tree, is_leaf=lambda x: isinstance(x, P))

    @property
    def local_devices(self) -> list[jax.Device]:
        """The devices of this process, in the order of the axis."""
        return list(self.mesh.local_devices)

    @property
    def own_device(self) -> jax.Device | None:
        """A device on which this process can run programs; None if the devices are only described."""
        here = set(jax.local_devices())
        return next((device for device in self.mesh.devices.flat if device in here), None)

    def local_rows(self, per_device: int) -> np.ndarray:
        """int[rows], the global indices of this process's environments, `per_device` on each device."""
        here = [device in set(self.local_devices) for device in self.mesh.devices.flat]
        return np.flatnonzero(np.repeat(here, per_device))

    def distribute(
        self, tree: PyTree, specs: PyTree, prepare: Callable[[PyTree], PyTree] = lambda part: part
    ) -> PyTree:
        """Makes global arrays of this process's rows; each device receives only its own rows.

        Args:
          tree: the rows of this process, on the host or on one device.
          specs: a prefix of the tree.
          prepare: applied to each device's part, on that device, before the global arrays are made.
        """
        devices = self.local_devices

        def part(i: int, spec: P, x: Any) -> Any:
            if _AXIS not in spec or len(devices) == 1:
                return x
            axis = list(spec).index(_AXIS)
            size = x.shape[axis] // len(devices)
            return x[(slice(None),) * axis + (slice(i * size, (i + 1) * size),)]

        def each(fn: Callable[..., Any], *trees: PyTree) -> PyTree:
            over = lambda spec, *subtrees: jax.tree.map(lambda *x: fn(spec, *x), *subtrees)  # noqa: E731
            return jax.tree.map(over, specs, *trees, is_leaf=lambda x: isinstance(x, P))

        def whole(spec: P, *shards: Array) -> Array:
            shape = list(shards[0].shape)
            if _AXIS in spec:
                shape[list(spec).index(_AXIS)] *= self.mesh.size
            return jax.make_array_from_single_device_arrays(
                tuple(shape), NamedSharding(self.mesh, spec), list(shards)
            )

        parts = [
            prepare(jax.device_put(each(lambda spec, x, i=i: part(i, spec, x), tree), device))
            for i, device in enumerate(devices)
        ]
        return each(whole, *parts)

    def join(self, parts: Sequence[PyTree]) -> PyTree:
        """Makes global arrays, sharded along their first axis, of one part on each device; copies nothing."""
        sharding = NamedSharding(self.mesh, P(_AXIS))

        def whole(*shards: Array) -> Array:
            shape = (len(shards) * shards[0].shape[0], *shards[0].shape[1:])
            return jax.make_array_from_single_device_arrays(shape, sharding, list(shards))

        return jax.tree.map(whole, *parts)

    def split(self, tree: PyTree) -> list[PyTree]:
        """Inverse of `join`."""
        indices = range(len(self.local_devices))
        return [jax.tree.map(lambda x, i=i: x.addressable_data(i), tree) for i in indices]

    def replicate(self, tree: PyTree) -> PyTree:
        """Copies values to every device; they must be equal in all processes, which is not checked."""
        replicated = NamedSharding(self.mesh, P())
        if jax.process_count() == 1:
            return jax.device_put(tree, replicated)

        # device_put would compare each array across processes.
        def put(x: Any) -> Array:
            if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
                return jax.random.wrap_key_data(put(jax.random.key_data(x)), impl=jax.random.key_impl(x))
            host = np.asarray(x)
            return jax.make_array_from_callback(host.shape, replicated, lambda index: host[index])

        return jax.tree.map(put, tree)

    def on_one_device(self, tree: PyTree) -> PyTree:
        """Copies whole arrays to one device of this process; all processes must call it."""
        if jax.process_count() == 1:
            return jax.device_put(tree, jax.devices()[0])
        whole = jax.jit(lambda x: x, out_shardings=NamedSharding(self.mesh, P()))(tree)
        return jax.tree.map(lambda x: x.addressable_data(0), whole)

    def gatherer(self) -> Callable[[Sequence[float]], Array] | None:
        """A function that gathers a few numbers from every process; None if there is only one process.

        All processes must call it equally often. It returns at once; its result, float32[devices, numbers],
        is ready once the work dispatched before it is done.
        """
        if jax.process_count() == 1:
            return None
        gather = jax.jit(lambda x: x, out_shardings=NamedSharding(self.mesh, P()))
        sharded = NamedSharding(self.mesh, P(_AXIS))

        def start(numbers: Sequence[float]) -> Array:
            own = np.tile(np.asarray(numbers, np.float32), (len(self.mesh.local_devices), 1))
            return gather(jax.make_array_from_process_local_data(sharded, own))

        return start


def one_copy(tree: PyTree) -> PyTree:
    """Replicated global arrays as arrays on this process's first device, without a copy."""
    return jax.tree.map(lambda x: x.addressable_data(0), tree)


def to_host(tree: PyTree) -> PyTree:
    """Whole arrays in host memory, in every process; all must call it, with the same arrays.

    On CPU the results may be views of device buffers: use them before those are donated.
    """

    def whole(x: Any) -> Any:
        if not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated:
            return x
        return multihost_utils.process_allgather(x, tiled=True)

    return jax.device_get(jax.tree.map(whole, tree))


# Each spec is a prefix: it holds for the whole tree of its field.
REPLICATED: Any = P()
SHARDED: Any = P(_AXIS)


def specs(cls: type[_T], **fields: Any) -> _T:
    """The specs of a state's or a trajectory's fields, as a prefix of its tree.

    Args:
      cls: a dataclass; fields marked `jaxrl.types.Sharded` are sharded, the others replicated.
      fields: specs of fields that are such dataclasses themselves.
    """
    sharded = {name: P(*[None] * mark.axis, _AXIS) for name, mark in marks(cls, Sharded).items()}
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    return cls(**dict.fromkeys(names, REPLICATED) | sharded | fields)


def shard_map(fn: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """`jax.shard_map`, but arrays without elements, arguments and constants, are made inside.

    XLA in jaxlib 0.11.2 ends the process (a segmentation fault) when it compiles a program for several
    devices in which one of these comes from outside, as they do in environments of XLand-MiniGrid.
    """

    @functools.wraps(fn)  # programs are called after it in profiles
    def mapped(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        specs = jax.tree.leaves(jax.tree.broadcast(in_specs, args, is_leaf=_is_spec), is_leaf=_is_spec)
        full = [i for i, x in enumerate(leaves) if not _is_empty(x)]

        def share(*given: Any) -> Any:
            found = dict(zip(full, given, strict=True))
            own = [
                found[i] if i in found else jnp.zeros(NamedSharding(mesh, spec).shard_shape(x.shape), x.dtype)
                for i, (x, spec) in enumerate(zip(leaves, specs, strict=True))
            ]
            return _with_own_constants(fn, *jax.tree.unflatten(structure, own))

        # check_vma=False: we sum the gradients ourselves, with a single psum per minibatch; with the check
        # on, JAX would insert another psum for every replicated parameter.
        part = jax.shard_map(
            share, mesh=mesh, in_specs=tuple(specs[i] for i in full), out_specs=out_specs, check_vma=False
        )
        return part(*(leaves[i] for i in full))

    return mapped


def _with_own_constants(fn: Callable[..., Any], *args: Any) -> Any:
    """`fn(*args)`, with constants without elements made in the traced program."""
    program, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
    constants = [jnp.zeros(x.shape, x.dtype) if _is_empty(x) else x for x in program.consts]
    results = jaxpr_as_fun(program.replace(consts=constants))(*jax.tree.leaves(args))
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def _is_empty(x: Any) -> bool:
    return x.size == 0 and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _is_spec(x: Any) -> bool:
    return isinstance(x, P)
