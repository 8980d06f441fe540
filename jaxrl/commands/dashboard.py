"""jaxrl dashboard [DIR]: shows the runs of a folder in a browser, as they train.

Runs with their states, filters on fields of their configurations, curves with
seeds as bands, searches, differences, logs, suites and videos. It only reads.
The address of the page has its state. Needs the `dashboard` extra.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxrl.commands import command_line
from jaxrl.commands.arguments import Argument, CommandArguments, flag
from jaxrl.config import ConfigError
from jaxrl.config.local_files import is_remote


class _Flags(CommandArguments):
    dir = Argument("DIR", "a folder with runs, at any depth; local or gs:// (default: runs)")
    host: str = flag(
        "--host=A", "the address to listen on (default: {default}, this machine alone)", "127.0.0.1"
    )
    port: int = flag(
        "--port=N", "its port (default: {default}; 0: any that is free)", 8050, within=(0, 65535)
    )
    interval: float | None = flag(
        "--interval=S",
        "seconds between looks (default: 2; 15 with gs://)",
        within=(0.1, command_line.LONGEST),
    )


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, names: Sequence[str]) -> int:
    if len(names) > 1:
        raise ConfigError(f"one `DIR` is to be named, not {' and '.join(names)}")
    folder = names[0] if names else "runs"

    from jaxrl.diagnostics.dashboard import collection, server

    collection.require_folder(folder)
    interval = flags.interval or (15.0 if is_remote(folder) else 2.0)
    server.serve(folder, flags.host, flags.port, float(interval), command_line.say)
    return 0
