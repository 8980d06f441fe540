"""Connections of a server: what uvicorn leaves unbounded is bounded here."""

from __future__ import annotations

import asyncio
from typing import Any

_LARGEST_HEAD = 2**15  # bytes of the first line and headers
_HEAD_SECONDS = 30.0  # for these to arrive, and for what is left of a body after its answer
MOST_CONNECTIONS = 2048


def protocol() -> type[asyncio.Protocol]:
    """uvicorn's protocol by httptools, which ends connections whose head is too large or takes too long.

    It also ends those that stop after an answer: uvicorn's limit on the pause between requests ends with the
    next byte, also if that is the rest of a body that nobody read, or a blank line, and no request.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class _BoundedProtocol(HttpToolsProtocol):
        _head = 0
        _in_head = True
        _in_body = False
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_bytes()

        def data_received(self, data: bytes) -> None:
            if self._in_head:
                self._head += len(data)
            super().data_received(data)
            # What is left of the head after this piece counts; a body behind it does not.
            if self._in_head and self._head > _LARGEST_HEAD and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")
            self._bound_pause()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            self._in_head = True
            self._head = 0
            self._expect_bytes()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._in_body = True
            self._cancel()
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._in_body = False
            self._cancel()
            super().on_message_complete()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._bound_pause()

        def _bound_pause(self) -> None:
            """After an answer, one of both timers runs until the next head begins."""
            is_answered = self.cycle is not None and self.cycle.response_complete
            if self._in_head or not is_answered or self.transport.is_closing():
                return
            if self._in_body and self._timer is None:
                self._expect_bytes()
            elif not self._in_body and self.timeout_keep_alive_task is None:
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )

        def _expect_bytes(self) -> None:
            self._cancel()
            self._timer = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

        def _cancel(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return _BoundedProtocol
