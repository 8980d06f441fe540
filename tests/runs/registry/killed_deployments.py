"""A program that deploys in processes of its own, each killed at a change of a file.

Reads lines "NTH<tab>ROOT<tab>FOLDER", deploys FOLDER to the registry ROOT and points `production` at it in a
forked process that ends by SIGKILL at its NTH change, and answers each with the exit code (-9: killed).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from jaxrl.runs.registry import ModelRegistry

# Of the events that Python reports, those that change something on the disk.
CHANGES = ("os.rename", "os.symlink", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "shutil.copyfile")


def deploy(nth: int, root: str, folder: str) -> None:
    left = [nth]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        writes = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if event in CHANGES or writes:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    registry = ModelRegistry(root, writable=True)
    number = registry.publish("walker", Path(folder))
    registry.promote("walker", "production", number)


def main() -> None:
    for line in sys.stdin:
        nth, root, folder = line.rstrip("\n").split("\t")
        child = os.fork()
        if not child:
            deploy(int(nth), root, folder)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
