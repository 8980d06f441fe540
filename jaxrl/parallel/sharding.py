"""Devices, the mesh and how state is laid out on it: the only file that knows them.

Everything inside the compiled program sees one device's share of the environments and an `Axis` for
the few sums that must cross devices. Parameters and statistics are replicated, environments sharded.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrl.config import ConfigError
from jaxrl.config.fields import RunError
from jaxrl.parallel import compilation, tpu_slices
from jaxrl.parallel.processes import LostProcess, Processes
from jaxrl.parallel.signals import leave
from jaxrl.types import Array, Axis, EpisodeStats, PyTree, TrainState, Trajectory

_AXIS = "data"
_SHUTDOWN_SECONDS = 30  # for processes that have all finished
_MESSAGE_BYTES = 1024  # of `everywhere`, sent at once

_T = TypeVar("_T")


def available_cores() -> int:
    """The CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def offer_cpu_devices(count: int) -> None:
    """Asks for `count` virtual CPU devices in this process.

    XLA_FLAGS, JAX_NUM_CPU_DEVICES, or a backend that has started, overrules it.
    """
    tpu_slices.hush_libtpu()
    flag = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not flag and not os.environ.get("JAX_NUM_CPU_DEVICES"):
        # JAX refuses once a backend runs, as in a notebook; the devices are then those it has.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", count)


@dataclass(frozen=True)
class Topology:
    """The devices of one training run, as a one-dimensional mesh."""

    mesh: Mesh

    @classmethod
    def of(cls, device_count: int) -> Topology:
        """The first `device_count` devices; of several processes, as many of each.

        Raises:
          ConfigError: there are fewer, or they cannot be shared out evenly.
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
        """These devices; some only describe what programs shall be compiled for."""
        return cls(Mesh(np.asarray(devices), (_AXIS,), axis_types=(AxisType.Auto,)))

    @property
    def axis(self) -> Axis:
        return Axis(_AXIS, self.mesh.size, self.mesh.devices.flat[0].platform)

    @property
    def description(self) -> str:
        """For people: `2 x cpu`, `8 x TPU v4 in 2 processes`."""
        devices = f"{self.mesh.size} x {self.mesh.devices.flat[0].device_kind}"
        return devices if jax.process_count() == 1 else f"{devices} in {jax.process_count()} processes"

    def shard(self, fn: Callable[..., Any], in_specs: Any, out_specs: Any, donate: bool = False) -> Any:
        """Jits `fn` as one program over the mesh; `donate` gives up its first argument's buffers."""
        # check_vma=False: gradients are summed by our own single psum per minibatch; with the check on,
        # JAX would insert a psum of its own for every replicated parameter.
        mapped = jax.shard_map(fn, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
        shardings = jax.tree.map(
            lambda spec: NamedSharding(self.mesh, spec), out_specs, is_leaf=lambda x: isinstance(x, P)
        )
        return jax.jit(
            mapped,
            out_shardings=shardings,
            donate_argnums=(0,) if donate else (),
            compiler_options=compilation.options(self.axis.platform),
        )

    def abstract(self, tree: PyTree, specs: PyTree) -> PyTree:
        """Shapes, dtypes and shardings of `tree`, for compiling and for restoring checkpoints."""

        def leaves(spec: P, part: PyTree) -> PyTree:
            sharding = NamedSharding(self.mesh, spec)
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), part)

        return jax.tree.map(leaves, specs, tree, is_leaf=lambda x: isinstance(x, P))

    @property
    def local_devices(self) -> list[jax.Device]:
        """Those of this process, in the order of the axis."""
        return list(self.mesh.local_devices)

    def local_rows(self, per_device: int) -> np.ndarray:
        """The global indices of the environments of this process, which has `per_device` on each device."""
        here = [device in set(self.local_devices) for device in self.mesh.devices.flat]
        return np.flatnonzero(np.repeat(here, per_device))

    def distribute(
        self, tree: PyTree, specs: PyTree, prepare: Callable[[PyTree], PyTree] = lambda part: part
    ) -> PyTree:
        """Global arrays of this process's rows, of which each device is sent its own and no others.

        Args:
          tree: of the rows of this process, on the host or on one device.
          specs: a prefix of the tree.
          prepare: turns the part of one device, which lies there, into what is kept of it.
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

    def replicate(self, tree: PyTree) -> PyTree:
        """Puts values on every device; they must be the same in all processes, which is not checked."""
        replicated = NamedSharding(self.mesh, P())
        if jax.process_count() == 1:
            return jax.device_put(tree, replicated)

        # device_put would have the processes compare each array.
        def put(x: Any) -> Array:
            if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
                return jax.random.wrap_key_data(put(jax.random.key_data(x)), impl=jax.random.key_impl(x))
            host = np.asarray(x)
            return jax.make_array_from_callback(host.shape, replicated, lambda index: host[index])

        return jax.tree.map(put, tree)

    def on_one_device(self, tree: PyTree) -> PyTree:
        """Whole arrays on one device of this process; all must call it."""
        if jax.process_count() == 1:
            return jax.device_put(tree, jax.devices()[0])
        whole = jax.jit(lambda x: x, out_shardings=NamedSharding(self.mesh, P()))(tree)
        return jax.tree.map(lambda x: x.addressable_data(0), whole)

    def gatherer(self) -> Callable[[Sequence[float]], Array] | None:
        """A function that all processes call alike, each with numbers of its own; None for one process.

        It returns at once; the array, float32[devices, numbers], is ready after the work handed over before.
        """
        if jax.process_count() == 1:
            return None
        gather = jax.jit(lambda x: x, out_shardings=NamedSharding(self.mesh, P()))
        sharded = NamedSharding(self.mesh, P(_AXIS))

        def start(numbers: Sequence[float]) -> Array:
            own = np.tile(np.asarray(numbers, np.float32), (len(self.mesh.local_devices), 1))
            return gather(jax.make_array_from_process_local_data(sharded, own))

        return start


@contextlib.contextmanager
def joined(processes: Processes) -> Iterator[None]:
    """Makes this process one of several while the block lasts, before JAX computes anything.

    What the block raises leaves the others alone: then the process must end, by `interrupt.leave`.

    Raises:
      LostProcess: the others did not come, or were lost inside the block.
    """
    if processes.alone or not _initialize(processes):
        yield
        return
    try:
        yield
    except ConfigError:
        raise
    except (jax.errors.JaxRuntimeError, ValueError, RuntimeError) as error:
        if (reason := _loss(error)) is not None:
            raise LostProcess(f"another process of the run was lost: {reason}") from error
        raise
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # They have all done their work.
        jax.distributed.shutdown()


def has_joined() -> bool:
    """Whether this process is one of several, and has not left them in good order."""
    return jax.distributed.is_initialized()


def _initialize(processes: Processes) -> bool:
    """Returns whether there are others."""
    # JAX's own handler would swallow SIGTERM; here processes agree on signals themselves.
    jax.config.update("jax_enable_preemption_service", False)
    where = processes.coordinator or f"the address that {processes.launcher} gives"
    host = (processes.coordinator or "").rpartition(":")[0]
    local = host in ("localhost", "127.0.0.1")
    # JAX would end a process that waits in vain with a stack trace.
    timer = threading.Timer(processes.join, _give_up, (processes, where))
    timer.daemon = True
    timer.start()
    try:
        jax.distributed.initialize(
            processes.coordinator,
            processes.num_processes,
            processes.process_id,
            cluster_detection_method=None if processes.launcher else "deactivate",
            initialization_timeout=processes.join + 60,
            heartbeat_timeout_seconds=processes.heartbeat,
            shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
            # Whoever reaches the port can join: from outside only where the others are there.
            coordinator_bind_address=processes.coordinator if local else None,
        )
    except ValueError:
        if processes.coordinator is None and processes.num_processes is None:
            return False  # It only looked like a cluster, and JAX, having looked closer, names no address.
        raise
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise LostProcess(f"this process could not join the others at {where}: {reason}") from error
    finally:
        timer.cancel()
    return True


def _give_up(processes: Processes, where: str) -> None:
    """In a thread of its own: the main one waits for the others."""
    count = f"the {processes.num_processes} processes" if processes.num_processes else "all processes"
    text = f"{count} did not meet at {where} within {processes.join} s (--join)"
    this = "" if processes.process_id is None else f"; this is process {processes.process_id}"
    print(f"error: {text}{this}", file=sys.stderr)
    leave(LostProcess.exit_code)


def _loss(error: Exception) -> str | None:
    """The reason, where an error says that another process does not answer any more."""
    signs = ("Gloo", "gloo", "coordination", "Connection", "connection", "heartbeat", "UNAVAILABLE", "NCCL")
    text = " ".join(str(error).split())
    return text[:200] if any(sign in text for sign in signs) else None


def num_processes() -> int:
    """How many processes share the training."""
    return jax.process_count()


def is_first() -> bool:
    """Whether this process is the one that acts for all, on files that they share."""
    return jax.process_index() == 0


def by_first(work: Callable[[], _T]) -> _T:
    """The first process does `work` for all, which get its JSON-compatible result.

    Raises:
      ConfigError, RunError: the work raised it; everywhere.
    """
    result: Any = None
    problem, error = None, None
    if is_first():
        try:
            result = work()
        except (ConfigError, RunError) as raised:
            error, problem = raised, [isinstance(raised, ConfigError), str(raised)]
    result, problem = everywhere([result, problem])[0]
    if problem is not None:
        raise error or (ConfigError if problem[0] else RunError)(problem[1])
    return result


def share(count: int) -> slice:
    """This process's share of `count` things that all processes divide among themselves."""
    here, processes = jax.process_index(), jax.process_count()
    return slice(here * count // processes, (here + 1) * count // processes)


def everywhere(value: Any) -> list[Any]:
    """The JSON-compatible `value` of each process, in order. All must call it: they wait for each other."""
    if jax.process_count() == 1:
        return [value]
    text = json.dumps(value).encode()
    received = [b""] * jax.process_count()
    # In messages of one size: another would be another program to compile.
    room = _MESSAGE_BYTES - 4
    for start in itertools.count(0, room):
        part = len(text).to_bytes(4, "little") + text[start : start + room].ljust(room, b"\0")
        parts = multihost_utils.process_allgather(np.frombuffer(part, np.uint8)).reshape(len(received), -1)
        received = [before + row[4:].tobytes() for before, row in zip(received, parts, strict=True)]
        lengths = [int.from_bytes(row[:4].tobytes(), "little") for row in parts]
        if max(lengths) <= start + room:
            return [json.loads(whole[:length]) for whole, length in zip(received, lengths, strict=True)]
    raise AssertionError("counting does not end")


def one_copy(tree: PyTree) -> PyTree:
    """Replicated global arrays as arrays of this process's first device, without a copy."""
    return jax.tree.map(lambda x: x.addressable_data(0), tree)


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
    **dict.fromkeys(Trajectory.__dataclass_fields__, _TIME_MAJOR) | {"last_value": SHARDED}
)
