"""jaxrl watch DIR [DIR...]: follows runs live on a terminal.

  DIR...         run folders, folders that hold some, or patterns; local or
                 gs://
  --interval=S   seconds between looks (default: 1; 5 with gs://)
  --debug        full tracebacks instead of one line for bad input

Runs that begin meanwhile appear by themselves. q or Ctrl-C ends the display,
never the runs. Where the output is no terminal it prints a line per run, once.
The load of NVIDIA GPUs needs the `monitor` extra.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from absl import flags

from jaxrl.commands import command_line
from jaxrl.config import ConfigError
from jaxrl.diagnostics.live.watcher import Watcher
from jaxrl.metrics.files import is_remote
from jaxrl.runs import records, storage


def main(argv: Sequence[str] | None = None) -> int:
    """Watches what `argv` names until a key ends it; returns the exit code (2: bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    values = flags.FlagValues()
    flags.DEFINE_float("interval", None, "Seconds.", 0.1, command_line.LONGEST, flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    names = command_line.parse_flags(values, argv, positional=True)
    if not names:
        raise ConfigError("no folder is named: jaxrl watch DIR [DIR...]")
    for name in names:
        storage.require_reachable("DIR", name)
        records.require_place(name)
    watcher = Watcher(names)
    watcher.look()
    interval = values["interval"].value or (5.0 if any(is_remote(name) for name in names) else 1.0)
    terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    if terminal and os.environ.get("TERM", "dumb") != "dumb":
        from jaxrl.diagnostics.live.terminal import display

        display(watcher, float(interval))
        return 0
    from jaxrl.diagnostics.live import screen

    if not watcher.runs:
        raise ConfigError(f"`DIR` (={' '.join(names)!r}) holds no run yet: no config.json")
    command_line.show("\n".join(screen.plain(watcher.runs)))
    return 0
