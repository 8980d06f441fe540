"""A command of a stage as a child process, whose output goes to the log of the stage."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from jaxrl.config import text
from jaxrl.pipeline.stages import Step
from jaxrl.runs import child_process
from jaxrl.runs.child_ending import Stopping, child_environment, reason
from jaxrl.runs.signals import Interruption

_POLL_SECONDS = 0.1
_TAIL = 4096  # bytes of a log in which its last line is looked for


def run(
    step: Step, log: Path, lock: int, interruption: Interruption, show: Callable[[str], None]
) -> tuple[int, str]:
    """Runs a command to its end; a signal to this process is passed on, and the command may save.

    Args:
      step: the command.
      log: takes its output; it continues the file.
      lock: a file descriptor that the command inherits.
      interruption: the signals received.
      show: is called with the last line of the output, several times a second.

    Returns:
      The exit code, and why the command failed in one line, or "".
    """
    part = log.with_suffix(".part")
    with part.open("wb") as output:
        process = subprocess.Popen(
            child_process.command("jaxrl", step.command, *step.arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            pass_fds=(lock,),
            start_new_session=True,  # Ctrl-C is for the pipeline, which passes it on as SIGTERM.
        )
        stopping: Stopping | None = None
        while process.poll() is None:
            if interruption.signum is not None and stopping is None:
                stopping = Stopping(process, f"jaxrl {step.command}")
            if stopping is not None:
                stopping.watch(show)
            show(last_line(part))
            time.sleep(_POLL_SECONDS)
    with log.open("ab") as whole:
        whole.write(f"$ {step.line}\n".encode(errors="backslashreplace") + part.read_bytes())
    return process.returncode, reason(process.returncode, part)


def last_line(file: Path) -> str:
    """The last line of a file that is not empty, printable; "" if there is none."""
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return text.one_line(next((line for line in reversed(lines) if line.strip()), ""))


def written_paths(log: Path) -> list[str]:
    """The paths of which the last command says `written to PATH`."""
    lines = log.with_suffix(".part").read_text(errors="replace").splitlines()
    return [line.removeprefix("written to ") for line in lines if line.startswith("written to ")]
