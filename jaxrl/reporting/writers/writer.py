"""The interface of metrics writers, and a writer that combines several."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_log = logging.getLogger(__name__)


class Writer:
    """A receiver of the metrics of a run. A writer defines `write`, and other methods as it needs them."""

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Records one row; `step` counts environment steps and decreases only after `resume_from`."""
        raise NotImplementedError

    def histograms(self, step: int, samples: Mapping[str, Sequence[float]]) -> None:
        """Records distributions, each given by its values; few writers support them."""

    def resume_from(self, step: int) -> None:
        """Announces that a run continues from `step`, resumed or rolled back: later rows will be repeated."""

    def status(self, phase: str) -> None:
        """Shows the user the phase that begins now, such as "compiling"."""

    def message(self, line: str) -> None:
        """Shows the user a line that is neither a metric nor a warning."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Reports the end of training, with the content of summary.json."""

    def flush(self) -> None:
        """Makes everything written so far durable."""

    def close(self) -> None:
        """Flushes and releases everything; nothing is written afterwards."""


class MultiWriter(Writer):
    """Passes every call on to several writers.

    The first failure of a writer (a full disk, a lost network folder, an unsupported value) is logged as a
    warning, and the next call tries again: lost metrics must not end a run, nor hide the reason of its end.
    """

    def __init__(self, writers: Sequence[Writer]) -> None:
        self._writers = tuple(writers)
        self._warned: set[int] = set()

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._each(lambda writer: writer.write(step, scalars))

    def histograms(self, step: int, samples: Mapping[str, Sequence[float]]) -> None:
        finite = finite_samples(samples)
        self._each(lambda writer: writer.histograms(step, finite))

    def resume_from(self, step: int) -> None:
        self._each(lambda writer: writer.resume_from(step))

    def status(self, phase: str) -> None:
        self._each(lambda writer: writer.status(phase))

    def message(self, line: str) -> None:
        self._each(lambda writer: writer.message(line))

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._each(lambda writer: writer.finish(summary))

    def flush(self) -> None:
        self._each(lambda writer: writer.flush())

    def close(self) -> None:
        self._each(lambda writer: writer.close())

    def _each(self, call: Callable[[Writer], None]) -> None:
        for writer in self._writers:
            with self._tolerant(writer):
                call(writer)

    @contextlib.contextmanager
    def _tolerant(self, writer: Writer) -> Iterator[None]:
        try:
            yield
        except NotImplementedError:
            raise  # It is no writer.
        except Exception as error:
            if id(writer) not in self._warned:
                self._warned.add(id(writer))
                reason = " ".join(str(error).split()) or type(error).__name__
                _log.warning("%s lost metrics, training continues: %s", type(writer).__name__, reason)


def finite_samples(samples: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """The finite values of each distribution that has any: bins cannot hold other values."""
    finite = {name: [x for x in values if math.isfinite(x)] for name, values in samples.items()}
    return {name: values for name, values in finite.items() if values}
