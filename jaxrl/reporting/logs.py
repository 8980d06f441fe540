"""Log records: all go to a file, warnings also to the user's display."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import sys
from collections.abc import Callable, Iterator
from io import TextIOWrapper

from jaxrl.config.errors import told
from jaxrl.config.local_files import no_link

_log = logging.getLogger(__name__)
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(run)s%(message)s"

# The run for which a thread works, of several in this process: a prefix of its log records.
run_name: contextvars.ContextVar[str] = contextvars.ContextVar("run_name", default="")


# The level from which records are logged; at "debug" also jax's own, such as on compilations.
LEVELS = ("debug", "info", "warning", "error")
log_level: contextvars.ContextVar[str] = contextvars.ContextVar("log_level", default="info")


@contextlib.contextmanager
def log_to(path: str | os.PathLike[str]) -> Iterator[None]:
    """Appends records of this package from `log_level` up, and all warnings, during the block.

    absl's handler, which would write across a live display, is off meanwhile. If `path` cannot be written
    (gs://, a full disk) there is a warning and no file. An error that ends the block is a record with its
    traceback, of the file alone: the code that started the work shows it.
    """
    level = getattr(logging, log_level.get().upper())
    root = logging.getLogger()
    handler = _file_handler(path)
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(_add_run)
    with contextlib.ExitStack() as undo:
        undo.callback(handler.close)
        for other in reversed([each for each in root.handlers if _writes_to_terminal(each)]):
            root.removeHandler(other)
            undo.callback(root.addHandler, other)
        root.addHandler(handler)
        undo.callback(root.removeHandler, handler)
        for name in ("jaxrl", "jax") if level == logging.DEBUG else ("jaxrl",):
            package = logging.getLogger(name)
            undo.callback(package.setLevel, package.level)
            package.setLevel(level)
        try:
            yield
        except Exception as error:
            where = (_log.name, logging.ERROR, __file__, 0)
            handler.handle(_log.makeRecord(*where, "failed: %s", (told(error),), sys.exc_info()))
            raise


def _run_prefix() -> str:
    return f"{run_name.get()}: " if run_name.get() else ""


def _add_run(record: logging.LogRecord) -> bool:
    record.__dict__["run"] = _run_prefix()
    return True


def _file_handler(path: str | os.PathLike[str]) -> logging.Handler:
    try:
        return _LogFile(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        _log.warning("there will be no log file: %s", error)
        return logging.NullHandler()


class _LogFile(logging.FileHandler):
    """Drops a record that cannot be written, as on a full disk, silently."""

    def _open(self) -> TextIOWrapper:
        binary = open(self.baseFilename, "ab", opener=no_link)  # noqa: SIM115
        return TextIOWrapper(binary, self.encoding, self.errors)

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


def _writes_to_terminal(handler: logging.Handler) -> bool:
    from absl.logging import ABSLHandler

    # rich replaces sys.stderr while a display is live; handlers made before keep the original.
    terminal = (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)
    return isinstance(handler, ABSLHandler) or getattr(handler, "stream", handler) in terminal


class WarningHandler(logging.Handler):
    """Passes each warning or error to a display as one line of text, until closed."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        logging.getLogger().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._show(f"{record.levelname.lower()}: {_run_prefix()}{record.getMessage()}")
        except OSError:
            pass  # Standard output is a full disk, or its reader has gone.
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        logging.getLogger().removeHandler(self)
        super().close()
