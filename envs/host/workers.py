"""The parent's side of worker processes: starts them, exchanges commands, and names what failed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl.envs.host import worker
from jaxrl.envs.host.shared import SharedArrays, WorkerOutput
from jaxrl.envs.host_env import HostEnvError

# Importing an environment's package can take long on a busy machine.
START_TIMEOUT = 180.0
_CLOSE_TIMEOUT = 2.0
_OUTPUT_TIMEOUT = 0.5

# Workers are the parallelism; threads inside them would fight for the same cores.
_DEFAULTS = dict.fromkeys(
    "OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS PYGAME_HIDE_SUPPORT_PROMPT".split(), "1"
)
# An environment that uses JAX must not take memory on the devices that learn.
_FORCED = {"JAX_PLATFORMS": "cpu"}


class RemoteError(Exception):
    """The traceback of a worker process, as the cause of a HostEnvError."""


class _Worker:
    """A process, the parent's ends of its pipes, and its output; `environments` names the ones it steps."""

    def __init__(self, name: str, memory_fd: int | None, environments: str):
        self.environments = environments
        with contextlib.ExitStack() as stack:

            def pipe() -> tuple[int, int]:
                ends = os.pipe()
                for end in ends:
                    stack.callback(os.close, end)
                return ends

            (command, command_fd) = pipe()
            (reply_fd, reply) = pipe()
            (lifeline, lifeline_fd) = pipe()
            output_fd, printed = pipe()
            ours = [command_fd, reply_fd, lifeline_fd, output_fd]
            arguments = map(str, (command, reply, lifeline, memory_fd or -1))
            # Its own session: Ctrl-C reaches the parent alone; what the environment starts ends with it.
            self.process = subprocess.Popen(
                [sys.executable, "-P", worker.__file__, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=[command, reply, lifeline] + ([] if memory_fd is None else [memory_fd]),
                start_new_session=True,
                env={**_DEFAULTS, **os.environ, **_FORCED},
            )
            self.command_fd, self.reply_fd, self.lifeline_fd, output_fd = [os.dup(fd) for fd in ours]
        self.output = WorkerOutput(output_fd, f"{name}, {environments}")

    def stop(self, kill: bool, deadline: float) -> None:
        """Ends the process and what it has started; waits until it is gone."""
        if not kill:
            # Its end closes the pipe. Reaping it here would free its number before the group is killed.
            select.select([self.reply_fd], [], [], max(0.0, deadline - time.monotonic()))
        self.kill()
        self.process.wait()

    def kill(self) -> None:
        if self.process.returncode is not None:  # its number may be another's by now
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Workers:
    """Worker processes over shared arrays, each belonging to one group of environments.

    Args:
      name: of the environment, for errors.
      setup: sent to all workers: `setup_of` and what `make_slot` of its slot needs: `seeds`, ...
      arrays: shared; holds `progress`, int64[workers, 2]: the environment being stepped and its step.
      groups: for every group, for every worker of it, the environments that it steps.
      timeout: seconds after which a worker that does not answer counts as hung.
    """

    def __init__(
        self,
        name: str,
        setup: Mapping[str, Any],
        arrays: SharedArrays,
        groups: Sequence[Sequence[Sequence[int]]],
        timeout: float,
    ):
        self._name = name
        self._timeout = timeout
        self._progress = arrays["progress"]
        self._groups: list[list[_Worker]] = []
        self._polls: list[select.poll] = []
        self._fresh = set(range(len(groups)))
        self._workers: list[_Worker] = []
        self._failing = threading.Lock()
        self._error: HostEnvError | None = None
        # Also at the end of the interpreter, and when nobody refers to the workers any more.
        weakref.finalize(self, _stop, self._workers)
        with arrays.descriptor() as memory_fd:
            for environments_of_workers in groups:
                poll = select.poll()
                group = []
                for environments in environments_of_workers:
                    found = _Worker(name, memory_fd, _span(environments))
                    told = {"worker": len(self._workers), "indices": list(environments), **arrays.description}
                    self._workers.append(found)
                    group.append(found)
                    poll.register(found.reply_fd, select.POLLIN)
                    _tell(found, dict(setup) | told)
                self._groups.append(group)
                self._polls.append(poll)

    def send(self, group: int) -> None:
        """Tells the workers of a group to step; the actions must lie in the shared arrays."""
        self._require_open()
        for w in self._groups[group]:
            with contextlib.suppress(OSError):  # a worker died since its last reply
                os.write(w.command_fd, worker.STEP)
                continue
            raise self._fail_by_death(w)

    def recv(self, group: int) -> None:
        """Waits until all workers of the group are ready.

        HostEnvError: an environment failed, a worker died or did not answer; all workers are ended, and every
        later call for any group raises the same.
        """
        self._require_open()
        timeout = START_TIMEOUT + self._timeout if group in self._fresh else self._timeout
        deadline = time.monotonic() + timeout
        waiting = {w.reply_fd: w for w in self._groups[group]}
        while waiting:
            ready = self._polls[group].poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
                slow = next(iter(waiting.values()))
                raise self._fail(lambda: f"{self._position(slow)}: did not answer within {timeout:g} s")  # noqa: B023
            for fd, _ in ready:
                w = waiting.pop(fd, None)
                if w is None:  # it answered before, and has died since
                    w = next(x for x in self._groups[group] if x.reply_fd == fd)
                self._read_reply(w)
        self._fresh.discard(group)

    def close(self) -> None:
        _stop(self._workers)

    def interrupt(self) -> None:
        """Kills all workers, so that a `recv` in another thread fails; `close` is still to be called."""
        for w in list(self._workers):
            w.kill()

    @property
    def process_ids(self) -> list[int]:
        return [w.process.pid for w in self._workers if w.process.returncode is None]

    def _require_open(self) -> None:
        if self._error is not None:
            raise self._error
        if not self._workers:
            raise HostEnvError(f"{self._name}: its worker processes have been stopped")

    def _read_reply(self, w: _Worker) -> None:
        reply = os.read(w.reply_fd, 1)
        if reply == worker.READY:
            return
        if not reply:
            raise self._fail_by_death(w)
        try:
            found = worker.receive_content(w.reply_fd)
        except EOFError:
            found = None
        if found is None:
            raise self._fail_by_death(w)
        problem = f"environment {found['index']}, step {found['step']}: {found['problem']}"
        raise self._fail(lambda: problem, RemoteError(f"in the worker process:\n{found['traceback']}"))

    def _fail_by_death(self, w: _Worker) -> HostEnvError:
        # Killing what is dead already does not change its exit code.
        w.output.join(_OUTPUT_TIMEOUT)
        cause = RemoteError("it printed last:\n" + "\n".join(w.output.last)) if w.output.last else None
        ending = lambda: f"its worker process {_ending(w.process.returncode)}"  # noqa: E731
        return self._fail(lambda: f"{self._position(w)}: {ending()}", cause)

    def _fail(self, problem: Callable[[], str], cause: Exception | None = None) -> HostEnvError:
        """Ends all workers; the error names the group that failed first.

        Descriptors stay open until `close`: threads of other groups may be reading from them.
        """
        with self._failing:
            if self._error is None:
                for w in self._workers:
                    w.kill()
                for w in self._workers:
                    w.process.wait()
                self._error = HostEnvError(f"{self._name}, {problem()}")
                self._error.__cause__ = cause
            return self._error

    def _position(self, w: _Worker) -> str:
        """The environment that a worker was stepping, or all of them if it was between steps."""
        index, step = (int(n) for n in self._progress[self._workers.index(w)])
        return f"environment {index}, step {step}" if index >= 0 else f"{w.environments}, after step {step}"


def describe(slot: str, name: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Makes one environment in a separate process and returns its `description`.

    `slot` is the module beside `worker` for its kind; `name` and `kwargs` are of the `make_env` there.
    HostEnvError: it hangs or its process dies.
    """
    w = _Worker(name, None, "made to ask for its spaces")
    try:
        _tell(w, {**setup_of(slot, name, kwargs), "describe": True})
        if not select.select([w.reply_fd], [], [], START_TIMEOUT)[0]:
            raise HostEnvError(f"{name}: was not made within {START_TIMEOUT:g} s")
        if not os.read(w.reply_fd, 1):
            _stop([w], kill=True)
            raise HostEnvError(f"{name}: the process that makes it {_ending(w.process.returncode)}")
        return worker.receive_content(w.reply_fd)
    finally:
        if w.process.returncode is None:
            _stop([w])


def require_made(label: str, found: Mapping[str, Any]) -> None:
    """Raises ValueError, one line, if a description reports that the environment could not be made."""
    if "problem" in found:
        cause = RemoteError(f"in the worker process:\n{found['traceback']}")
        raise ValueError(f"{label}: {found['problem'].replace('raised ', 'making it raised ', 1)}") from cause


def setup_of(slot: str, name: str, kwargs: Mapping[str, Any], **rest: Any) -> dict[str, Any]:
    """The instructions that all workers of a batch share; `slot`, `name` and `kwargs` as of `describe`."""
    told = {"slot": slot, "name": name, "kwargs": dict(kwargs)}
    # The parent's, with the current folder for modules of the user's own.
    path = [p or os.getcwd() for p in sys.path] + ([os.getcwd()] if os.getcwd() not in sys.path else [])
    return {"describe": False, "path": path, **told, **rest}


def _tell(w: _Worker, content: Mapping[str, Any]) -> None:
    # A worker that dies at once is noticed with its first reply, which has more detail.
    with contextlib.suppress(BrokenPipeError):
        worker.send_message(w.command_fd, b"", dict(content))


def _stop(workers: list[_Worker], kill: bool = False) -> None:
    for w in workers:
        os.close(w.command_fd)  # a worker between two steps closes its environments and ends
    deadline = time.monotonic() + _CLOSE_TIMEOUT
    for w in workers:
        w.stop(kill, deadline)
        w.output.join(_CLOSE_TIMEOUT)
        os.close(w.reply_fd)
        os.close(w.lifeline_fd)
    workers.clear()


def _span(environments: Sequence[int]) -> str:
    first = environments[0]
    last = environments[-1]
    return f"environment {first}" if first == last else f"environments {first} to {last}"


def _ending(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"


def rows_of_workers(num_envs: int, num_groups: int, num_workers: int) -> list[list[list[int]]]:
    """Splits the environments into groups and these among their workers, as evenly as can be.

    0 workers: one for each core.
    """
    if not num_workers:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        num_workers = max(cores // num_groups, 1) * num_groups
    per_group = max(1, min(num_workers // num_groups, num_envs // num_groups))
    groups = np.split(np.arange(num_envs), num_groups)
    return [[part.tolist() for part in np.array_split(rows, per_group)] for rows in groups]
