"""jaxrl watch DIR [DIR...]: follows runs live on a terminal.

Runs that begin meanwhile appear by themselves. q or Ctrl-C ends the display,
never the runs. If the output is not a terminal it prints a line per run, once.
The load of NVIDIA GPUs needs the `monitor` extra.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from jaxrl.commands import command_line
from jaxrl.commands.arguments import Argument, CommandArguments, flag
from jaxrl.config import ConfigError
from jaxrl.config.local_files import is_remote
from jaxrl.diagnostics.live_run import Watcher
from jaxrl.runs import records, storage


class _Flags(CommandArguments):
    dir = Argument("DIR...", "run folders, folders that hold some, or patterns; local or gs://")
    interval: float | None = flag(
        "--interval=S", "seconds between looks (default: 1; 5 with gs://)", within=(0.1, command_line.LONGEST)
    )


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, names: Sequence[str]) -> int:
    if not names:
        raise ConfigError("no folder is named: jaxrl watch DIR [DIR...]")
    for name in names:
        storage.require_reachable("DIR", name)
        records.require_place(name)
    watcher = Watcher(names)
    watcher.look()
    interval = flags.interval or (5.0 if any(is_remote(name) for name in names) else 1.0)
    terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    if terminal and os.environ.get("TERM", "dumb") != "dumb":
        from jaxrl.diagnostics.live_screen import display

        display(watcher, float(interval))
        return 0
    from jaxrl.config import text
    from jaxrl.diagnostics.live_screen import plain

    if not watcher.runs:
        raise ConfigError(f"`DIR` (={' '.join(names)!r}) holds no run yet: no config.json")
    for line in plain(watcher.runs):
        command_line.say(text.one_line(line))
    return 0
