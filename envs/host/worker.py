"""The worker process: steps a few environments on command.

This file runs as a script and imports nothing of this package: a worker must start quickly, without JAX.
The parent's side is `jaxrl.envs.host.workers`. The environments of a kind are made and stepped by a
module beside it, `gymnasium_slot` or `parallel_slot`, which the parent names and which has:

    make_env(name, kwargs)      the environment
    description(env)            what the parent needs to know of it, as plain data
    valid_names(error)          the known names, if `error` means an unknown name, or None
    make_slot(env, index, setup, arrays)    steps it: with `env`, `index`, `steps` so far, and `step()`

Commands and replies are single bytes on two pipes; arrays lie in memory shared with the parent. A third
pipe, the lifeline, is never written to: when the parent is gone the kernel ends this process by SIGIO,
even if an environment hangs inside C code.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import math
import mmap
import os
import pickle
import runpy
import signal
import struct
import sys
import traceback
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

READY = b"k"
FAILED = b"e"
STEP = b"s"

# One part of an observation or an action, as plain data, because it crosses processes: path and the kinds of
# containers along it (`within`), kind ("discrete", "multi_discrete" or "box"), shape, dtype, stored (the
# dtype handed on), low, high, start. A "dict" or a "tuple" is one without parts. A "mixed" action is one
# vector of all its `parts`, float32.
Leaf = dict[str, Any]


class Problem(Exception):
    """A mistake of an environment, to be completed by its name, index and step."""


def send_message(fd: int, kind: bytes, content: Any) -> None:
    """Writes `kind`, the length and the pickled content."""
    payload = pickle.dumps(content)
    data = kind + struct.pack("<Q", len(payload)) + payload
    while data:
        data = data[os.write(fd, data) :]


def receive_content(fd: int) -> Any:
    """Reads what `send_message` wrote after its kind."""
    (length,) = struct.unpack("<Q", _read(fd, 8))
    return pickle.loads(_read(fd, length))


def _read(fd: int, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = os.read(fd, min(length - len(data), 1 << 20))
        if not part:
            raise EOFError("the pipe was closed")
        data += part
    return data


def map_arrays(memory: mmap.mmap, layout: list[tuple[str, int, Any, str]]) -> dict[str, np.ndarray]:
    """Arrays over shared memory; the layout is a list of (name, offset, shape, dtype)."""
    return {name: np.ndarray(shape, dtype, buffer=memory, offset=at) for name, at, shape, dtype in layout}


def describe(space: Any, path: tuple[Any, ...] = (), within: tuple[str, ...] = ()) -> list[Leaf]:
    """The leaves of a gymnasium space, dicts and tuples flattened; Problem if it has no use here."""
    from gymnasium import spaces

    if not isinstance(space, spaces.Space):
        raise Problem(f"has {space!r} in place of a space of gymnasium")
    leaf: Leaf = {"path": path, "within": within, "shape": tuple(space.shape or ()), "start": 0}
    if isinstance(space, spaces.Dict):
        return _describe_parts(leaf, "dict", space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return _describe_parts(leaf, "tuple", enumerate(space.spaces))
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return [leaf | integers("discrete", first, first + int(space.n) - 1, space.dtype)]
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        start: Any = np.asarray(getattr(space, "start", 0 * space.nvec), np.int64)
        return [leaf | integers("multi_discrete", start, start + space.nvec - 1, space.dtype)]
    if isinstance(space, spaces.MultiBinary) and len(leaf["shape"]) == 1:
        zeros = np.zeros(leaf["shape"], np.int64)
        return [leaf | integers("multi_discrete", zeros, zeros + 1, space.dtype)]
    if isinstance(space, spaces.Box):
        stored = {"float64": "float32", "int64": "int32", "uint64": "uint32"}.get(str(space.dtype))
        dtypes = {"dtype": str(space.dtype), "stored": stored or str(space.dtype)}
        return [leaf | {"kind": "box", "low": space.low, "high": space.high} | dtypes]
    where = f" at {'.'.join(map(str, path))}" if path else ""
    raise Problem(f"has a space that is not supported{where}: {space}")


def _describe_parts(leaf: Leaf, kind: str, parts: Iterable[tuple[Any, Any]]) -> list[Leaf]:
    within = (*leaf["within"], kind)
    found = [x for key, part in parts for x in describe(part, (*leaf["path"], key), within)]
    return found or [leaf | {"kind": kind, "shape": (0,), "dtype": "float32", "stored": "float32"}]


def integers(kind: str, low: Any, high: Any, dtype: Any) -> Leaf:
    """The part of a leaf that says which integers, both bounds included."""
    return {"kind": kind, "low": low, "high": high, "start": low, "dtype": str(dtype), "stored": "int32"}


class Reader:
    """Checks one part of every observation against its space and writes it to `out`."""

    def __init__(self, leaf: Leaf, out: np.ndarray):
        self._path = leaf["path"]
        self._shape = leaf["shape"]
        self._is_box = leaf["kind"] == "box"
        self._dtype = np.dtype(leaf["dtype"])
        self._low = leaf["low"]
        self._high = leaf["high"]
        self._start = leaf["start"]
        self._out = out

    def read(self, obs: Any) -> None:
        try:
            for key in self._path:
                obs = obs[key]
            array = np.asarray(obs)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise Problem(f"returned {self._what} that is not as its space declares it") from error
        if array.shape != self._shape:
            raise Problem(f"returned {self._what} of shape {array.shape}, its space has {self._shape}")
        if array.dtype.kind not in "biuf":
            raise Problem(f"returned {self._what} of dtype {array.dtype}, its space has {self._dtype}")
        if not self._is_box:
            self._read_integers(array)
            return
        if array.dtype == self._out.dtype:
            self._out[...] = array
        else:
            self._convert(array)
        if array.dtype.kind == "f" and not np.isfinite(self._out).all():
            raise Problem(f"returned {self._what} with NaN or infinity in it")

    def _convert(self, array: np.ndarray) -> None:
        """Stores numbers in another type, such as numpy's own float64 or int64; Problem if they do not fit.

        Floats may be rounded to floats, and nothing else.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            self._out[...] = array
        floats = array.dtype.kind == "f" and self._out.dtype.kind == "f"
        kept = np.isfinite(self._out) | ~np.isfinite(array) if floats else self._out == array
        if not np.all(kept):
            found = f"{self._what} with {array[~kept].flat[0]} in it, which {self._out.dtype} cannot hold"
            raise Problem(f"returned {found}: scale or clip it, or declare another space")

    def _read_integers(self, array: np.ndarray) -> None:
        if array.dtype.kind == "b":
            array = array.astype(np.int8)
        # So that NaN is outside.
        inside = (array >= self._low) & (array <= self._high)
        if array.dtype.kind == "f":
            inside &= np.trunc(array) == array
        if not np.all(inside):
            raise Problem(f"returned {self._what} outside its space: {array}")
        self._out[...] = array - self._start

    @property
    def _what(self) -> str:
        return f"an observation {'.'.join(map(str, self._path))!r}" if self._path else "an observation"


def action_of(leaf: Leaf, action: np.ndarray) -> Any:
    """The action as the environment wants it; a copy, for the shared array will change."""
    if leaf["kind"] == "mixed":
        ends = np.cumsum([math.prod(part["shape"]) for part in leaf["parts"]])[:-1]
        rows = zip(leaf["parts"], np.split(action, ends), strict=True)
        return _nest([(part, action_of(part, x.reshape(part["shape"]))) for part, x in rows])
    if leaf["kind"] in ("dict", "tuple"):
        return {} if leaf["kind"] == "dict" else ()
    if leaf["kind"] == "discrete":
        # A number of numpy, as `sample` of the space gives one: environments call its methods.
        return np.dtype(leaf["dtype"]).type(int(action) + leaf["start"])
    if leaf["kind"] == "multi_discrete":
        return (action + leaf["start"]).astype(leaf["dtype"])
    return action.astype(leaf["dtype"])


def _nest(parts: list[tuple[Leaf, Any]], depth: int = 0) -> Any:
    """The dicts and tuples that (leaf, value) come from."""
    first, value = parts[0]
    if depth == len(first["path"]):
        return value
    keys = dict.fromkeys(leaf["path"][depth] for leaf, _ in parts)
    found = {key: _nest([x for x in parts if x[0]["path"][depth] == key], depth + 1) for key in keys}
    return tuple(found.values()) if first["within"][depth] == "tuple" else found


def main(command_fd: int, reply_fd: int, lifeline_fd: int, memory_fd: int) -> None:
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    for stream in (sys.stdout, sys.stderr):  # both lead to the parent's log
        stream.reconfigure(line_buffering=True, errors="replace")  # type: ignore[union-attr]
    _die_with_parent(lifeline_fd)
    setup = receive_content(command_fd)
    sys.path[:] = setup["path"]
    kind = _load(setup["slot"])
    if setup["describe"]:
        _describe(reply_fd, setup, kind)
        return
    memory = mmap.mmap(memory_fd, setup["size"])
    os.close(memory_fd)
    arrays = map_arrays(memory, setup["layout"])
    progress = arrays["progress"][setup["worker"]]
    slots: list[Any] = []
    with _report_errors(reply_fd, progress):
        for index in setup["indices"]:
            progress[:] = index, 0
            env = kind["make_env"](setup["name"], setup["kwargs"])
            slots.append(kind["make_slot"](env, index, setup, arrays))
        while True:
            for slot in slots:
                progress[:] = slot.index, slot.steps + 1
                slot.step()
            progress[0] = -1
            os.write(reply_fd, READY)
            if not os.read(command_fd, 1):
                break
    # Nobody reads the reply pipe any more: errors from here on are printed.
    for slot in slots:
        slot.env.close()


def _load(module: str) -> dict[str, Any]:
    """The names that a module beside this one defines, which imports this one and `answers` by full names.

    Those are looked up before their package would be imported.
    """
    sys.modules["jaxrl.envs.host.worker"] = sys.modules["__main__"]
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.modules["jaxrl.envs.host.answers"] = beside = types.ModuleType("answers")
    beside.__dict__.update(runpy.run_path(os.path.join(folder, "answers.py")))
    return runpy.run_path(os.path.normpath(os.path.join(folder, f"{module}.py")))


def _die_with_parent(lifeline_fd: int) -> None:
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline_fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline_fd, fcntl.F_SETFL, fcntl.fcntl(lifeline_fd, fcntl.F_GETFL) | os.O_ASYNC)


@contextlib.contextmanager
def _report_errors(reply_fd: int, progress: np.ndarray) -> Iterator[None]:
    try:
        yield
    except BaseException as error:  # SystemExit too: an environment must not end its worker silently
        content = {
            "index": int(progress[0]),
            "step": int(progress[1]),
            "problem": _one_line(error),
            "traceback": traceback.format_exc(),
        }
        with contextlib.suppress(OSError):
            send_message(reply_fd, FAILED, content)
        os._exit(1)


def _one_line(error: BaseException) -> str:
    if isinstance(error, Problem):
        return " ".join(str(error).split())
    return f"raised {_load('../modules')['one_line'](error)}"


def _describe(reply_fd: int, setup: dict[str, Any], kind: dict[str, Any]) -> None:
    """Replies with the spaces of one environment, or with what is wrong with the name."""
    content: dict[str, Any]
    env = None
    try:
        env = kind["make_env"](setup["name"], setup["kwargs"])
        content = kind["description"](env)
    except BaseException as error:
        content = {"problem": _one_line(error), "traceback": traceback.format_exc()}
        if (valid := kind["valid_names"](error)) is not None:
            content["valid"] = valid
    send_message(reply_fd, READY, content)
    # After the reply: an environment that hangs here is killed, and has sent everything.
    if env is not None:
        env.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
