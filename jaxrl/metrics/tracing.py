"""Profiles: device traces for the TensorBoard profile plugin, and a profile of the host's Python."""

from __future__ import annotations

import contextlib
import cProfile
import io
import logging
import os
import pstats
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax

from jaxrl.metrics.clock import Clock

_log = logging.getLogger(__name__)

# The parts of a run, as named in its programs (`phase` there) and on the host's timeline.
PHASES = ("rollout", "advantage", "update", "evaluate", "checkpoint")
# Iterations that a signal traces if the configuration does not set them.
SIGNAL_ITERATIONS = 3
_HOST_ROWS = 15

# Names a span of the host's timeline in a trace; nearly free outside one.
host_phase = jax.profiler.TraceAnnotation
# Names the operations of a program that are traced inside the block.
phase = jax.named_scope


class Traces:
    """Records traces of windows of iterations: one from the configuration, others on request.

    A trace that fails is reported; it never stops training. The profile plugin finds traces under
    `<folder>/plugins/profile` when TensorBoard is pointed at `folder`; beside each lie the compiled programs
    as text, from which `jaxrl profile-summary` knows the phase of each operation.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        window: tuple[int, int] = (0, 0),
        programs: Callable[[], Iterable[Any]] = tuple,
        tell: Callable[[str], None] = _log.info,
        clock: Clock | None = None,
    ) -> None:
        """Prepares a trace.

        Args:
          folder: to write to; None records nothing but keeps the edges.
          window: (start, count): `count` iterations (0: none) from the first call at or after `start`.
          programs: returns the compiled programs, as `jax.stages.Compiled`.
          tell: shows the user a line with the path of a trace.
          clock: the run's clock; waiting for training counts as training.
        """
        self._folder = "" if folder is None else os.fspath(folder)
        start, self._count = window
        self._programs = programs
        self._tell = tell
        self._clock = clock or Clock()
        self._begin: int | None = start if self._count > 0 else None
        self._end: int | None = None
        self._exact = True
        self._running = False

    def request(self, iteration: int, exact: bool) -> None:
        """Requests a trace from `iteration` on; one that is open continues.

        With `exact`, dispatches end at the edges of the trace; otherwise the trace covers whole dispatches.
        One of several processes that compute together must not request an exact trace alone.
        """
        if self._end is None:
            self._begin = iteration
            self._exact = exact

    def edge(self) -> int:
        """The iteration at which the next trace begins or the open one ends: a dispatch must end there."""
        following = self._begin if self._end is None else self._end
        return sys.maxsize if following is None or not self._exact else following

    def step(self, iteration: int, pending: Any = None) -> None:
        """Opens or ends a trace when due.

        Args:
          iteration: the iteration about to be dispatched.
          pending: results of the work in flight, waited for only at both ends of a trace, so that it
            holds whole iterations although dispatch is asynchronous.
        """
        if self._end is not None and iteration >= self._end:
            self._wait(pending)
            self.close()
        if self._begin is not None and iteration >= self._begin:
            self._wait(pending)
            self._begin = None
            self._end = iteration + (self._count or SIGNAL_ITERATIONS)
            if self._folder:
                self._open()

    def close(self) -> None:
        """Ends a trace that is still open and writes it."""
        running = self._running
        self._running = False
        self._end = None
        if not running:
            return
        try:
            jax.profiler.stop_trace()
            written = max(Path(self._folder).glob("plugins/profile/*"), key=lambda path: path.name)
            for program in self._programs():
                text = program.as_text()
                found = re.match(r"HloModule ([\w.\-]+)", text)
                (written / f"{found[1] if found else 'program'}.hlo.txt").write_text(text)
            self._tell(f"wrote a trace: jaxrl profile-summary {shlex.quote(str(written))}")
        except (RuntimeError, OSError, ValueError) as error:
            _log.warning("the trace could not be written: %s", error)

    def _wait(self, pending: Any) -> None:
        with self._clock.measure("train"):
            jax.block_until_ready(pending)

    def _open(self) -> None:
        # Without every Python call and every lock, a trace is smaller and more accurate.
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.host_tracer_level = 1
        try:
            jax.profiler.start_trace(self._folder, profiler_options=options)
            self._running = True
        except (RuntimeError, OSError) as error:
            _log.warning("no trace: the profiler did not start: %s", error)


@contextlib.contextmanager
def host_profile(folder: str | os.PathLike[str], enabled: bool) -> Iterator[list[str]]:
    """Profiles the Python of the calling thread inside the block, if `enabled`.

    Writes `host_profile.pstats` for `python -m pstats` or snakeviz, and `host_profile.txt`. Yields a list to
    which the lines of host_profile.txt are added at the end of the block.
    """
    lines: list[str] = []
    if not enabled:
        yield lines
        return
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        yield lines
    finally:
        profiler.disable()
        lines += _host_table(profiler)
        try:
            profiler.dump_stats(Path(folder, "host_profile.pstats"))
            Path(folder, "host_profile.txt").write_text("\n".join(lines) + "\n")
        except OSError as error:
            _log.warning("the profile of the host could not be written: %s", error)


def _host_table(profiler: cProfile.Profile) -> list[str]:
    """The lines of host_profile.txt: the functions with the most time of their own."""
    stats = pstats.Stats(profiler, stream=io.StringIO())
    timings: Any = stats.stats  # type: ignore[attr-defined]
    total = sum(own for _, _, own, _, _ in timings.values())
    rows = sorted(timings.items(), key=lambda item: item[1][2], reverse=True)[:_HOST_ROWS]
    lines = [f"host: {total:.2f} s in Python's main thread"]
    lines.append(f"{'own s':>8} {'all s':>8} {'calls':>9}  function")
    for (file, line, function), (_, calls, own, cumulative, _) in rows:
        where = f"{Path(file).parent.name}/{Path(file).name}:{line} " if line else ""
        lines.append(f"{own:8.3f} {cumulative:8.3f} {calls:9,}  {where}{function}")
    return lines
