"""Metrics as TensorBoard event files, through tensorboardX: curves, configuration and layout of charts."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl.config import default_config, flatten
from jaxrl.config.declarations import COMMON, algorithm_of
from jaxrl.config.local_files import is_remote
from jaxrl.reporting.writers.writer import Writer, finite_samples

# On gs:// every flush uploads the whole file again.
FLUSH_SECONDS = 120
# Together with the algorithm's section, the columns of the hyperparameters tab.
_HYPERPARAMETERS = ("seed", "env", "network", "normalize")
_RESULTS = ("eval/return", "episode/return", "episode/length", "time/steps_per_second")
# Evaluations that play both ways have each metric three times: see docs/evaluation.md.
_MODES = "greedy/|sampled/"
_BINS = 30


class TensorBoardWriter(Writer):
    """Writes every scalar under its own tag against environment steps, except the steps themselves.

    The first file of a process also holds the configuration as text, hyperparameters and a layout of charts.
    Writes in the calling thread: a thread of tensorboardX would die of a full disk and block its queue.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        config: Mapping[str, Any] = types.MappingProxyType({}),
        highlights: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Takes the folder for event files; the first row opens the first file.

        Args:
          config: as JSON values.
          highlights: (metric, label) of the algorithm's charts.
        """
        # tensorboardX takes what comes before a colon for the kind of address.
        self._folder = os.fspath(folder) if is_remote(folder) else os.path.abspath(folder)
        self._config = config
        self._highlights = highlights
        self._start_step: int | None = 0
        self._file: Any = None
        self._files = 0
        self._flushed = 0.0

    def resume_from(self, step: int) -> None:
        self.close()
        self._start_step = step

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        # Here, not above: its import takes longer than the rest of the package's start.
        from tensorboardX.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=name, simple_value=float(x)) for name, x in scalars.items() if name != "steps"
        ]
        self._write(step, [Summary(value=values)])

    def histograms(self, step: int, samples: Mapping[str, Sequence[float]]) -> None:
        from tensorboardX import summary

        finite = finite_samples(samples)
        self._write(step, [summary.histogram(name, values, _BINS) for name, values in finite.items()])

    def finish(self, summary: Mapping[str, Any]) -> None:
        if self._file is not None and self._config:
            from tensorboardX.summary import hparams

            self._write(int(summary.get("steps", 0)), [hparams(_hyperparameters(self._config), {})[2]])

    def _write(self, step: int, contents: Sequence[Any]) -> None:
        try:
            if self._file is None:
                self._open()
            for content in contents:
                self._event(step=step, summary=content)
            if time.monotonic() - self._flushed > FLUSH_SECONDS:
                self.flush()
        except OSError:
            # TensorBoard reads a file up to a torn record: the next row goes to another.
            with contextlib.suppress(OSError):
                self.close()
            raise

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        file = self._file
        self._file = None
        if file is not None:
            file.close()

    def _open(self) -> None:
        from tensorboardX.proto.event_pb2 import SessionLog
        from tensorboardX.record_writer import RecordWriter, directory_check

        if os.path.islink(self._folder):
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed", self._folder)
        directory_check(self._folder)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{self._files}"
        self._files += 1
        self._file = RecordWriter(os.path.join(self._folder, name))
        self._flushed = time.monotonic()
        self._event(file_version="brain.Event:2")
        if self._start_step is not None:
            # TensorBoard hides what earlier files hold from this step on.
            self._event(step=self._start_step + 1, session_log=SessionLog(status=SessionLog.START))
            step = self._start_step
            self._start_step = None
            if self._config:
                self._write(step, _start_summaries(self._config, self._highlights))

    def _event(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._file.write(Event(wall_time=time.time(), **fields).SerializeToString())


def _start_summaries(config: Mapping[str, Any], highlights: Sequence[tuple[str, str]]) -> list[Any]:
    from tensorboardX import summary

    experiment, session, _ = summary.hparams(_hyperparameters(config), dict.fromkeys(_RESULTS, 0.0))
    charts = {
        group: {title: ["Multiline", tags] for title, tags in titles.items()}
        for group, titles in layout(highlights, bool(config.get("evaluate", {}).get("suite"))).items()
    }
    return [experiment, session, summary.custom_scalars(charts), summary.text("config", _table(config))]


def layout(highlights: Sequence[tuple[str, str]], suite: bool = False) -> dict[str, dict[str, list[str]]]:
    """Patterns of metrics by chart, charts by group.

    Args:
      highlights: (metric, label); each has a chart.
      suite: True if evaluations play a suite.
    """
    charts = {
        "Learning": {
            "return: training and evaluation": ["episode/return$", f"eval/({_MODES})?return$"],
            "return of an episode: lowest, mean, highest": ["episode/return(_min|_max)?$"],
            "episode length": ["episode/length", f"eval/({_MODES})?length$"],
        },
        "Environment": {
            "success rate": ["env/success_rate$", f"eval/({_MODES})?success_rate$"],
            "what the environment reports": ["env/.*"],
        },
        "Health": {label: [f"{key}$"] for key, label in highlights}
        | {"gradient norm by layer": ["grad/norm.*"]},
        "Speed": {
            "steps per second": ["time/steps_per_second"],
            "seconds by phase": ["time/.*_seconds"],
            "host": ["host/.*utilization"],
        },
    }
    if suite:
        charts["Categories"] = {
            label: [f"eval/(?!{_MODES}).+/{key}$"]
            for key, label in (("success_rate", "success rate"), ("efficiency", "efficiency"),
                               ("safety", "safety"), ("steps", "steps"), ("return", "return"))
        }  # fmt: skip
    return charts


def _hyperparameters(config: Mapping[str, Any]) -> dict[str, Any]:
    common = (*COMMON, "derived")  # of every algorithm
    others = [name for name, x in config.items() if isinstance(x, Mapping) and name not in common]
    flat = flatten({name: config[name] for name in (*_HYPERPARAMETERS, *others) if name in config})
    # The table has its columns in this order, and is far wider than a screen.
    first = [name for name in ("seed", *(f"{other}.learning_rate" for other in others)) if name in flat]
    ordered = {name: flat[name] for name in (*first, *flat) if flat[name] is not None}
    return {name: str(x) if isinstance(x, (list, tuple)) else x for name, x in ordered.items()}


def _table(config: Mapping[str, Any]) -> str:
    """The configuration as Markdown, fields that differ from the default first."""
    defaults = default_config(algorithm_of(config)).to_dict()
    default = {name: list(x) if isinstance(x, tuple) else x for name, x in flatten(defaults).items()}
    fields = {name: value for name, value in flatten(config).items() if name in default}
    changed = {name: value for name, value in fields.items() if value != default[name]}
    lines = ["| field | value | default |", "|---|---|---|"]
    lines += [f"| **{name}** | **{value}** | {default[name]} |" for name, value in changed.items()]
    lines += [f"| {name} | {value} | |" for name, value in fields.items() if name not in changed]
    return "\n".join(lines)
