"""Runs a server until a signal ends it, with bounds on connections that uvicorn leaves open."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

from jaxrl.config import installation
from jaxrl.config.errors import ConfigError, RunError
from jaxrl.inference.serving import TOKEN_VARIABLE, Refusal, ServerOptions
from jaxrl.inference.serving.application import HAS_ARRIVED, ServingApplication
from jaxrl.inference.serving.served_policy import RegistryTarget, ServedPolicy
from jaxrl.inference.serving.service import PolicyService
from jaxrl.runs import web
from jaxrl.runs.signals import handled_by

_SWEEP_SECONDS = 5.0
_BACKLOG = 2048
_LARGEST_HEAD = 2**15  # bytes of the first line and headers
_HEAD_SECONDS = 30.0  # for these to arrive, and for what is left of a body after its answer
MOST_CONNECTIONS = 2048


def check_options(options: ServerOptions) -> None:
    """Raises ConfigError if a package is missing, or the address needs a token."""
    installation.require("`jaxrl serve`", "serve", "uvicorn", "httptools", "prometheus_client")
    if not options.is_local and not options.token:
        needs = f"is not the loopback address, so requests must bear a token: set {TOKEN_VARIABLE}"
        raise ConfigError(f"`--host` (={options.host!r}) {needs}")
    if not options.token.isascii() or any(c.isspace() for c in options.token):
        raise ConfigError(f"`{TOKEN_VARIABLE}` must be ASCII without spaces")


def serve(
    policy: ServedPolicy,
    options: ServerOptions,
    sockets: socket.socket,
    target: RegistryTarget | None = None,
    number: int = 0,
    tell: Callable[[str], None] = print,
) -> None:
    """Answers requests until SIGTERM or SIGINT; ends once the ones in progress are answered.

    Args:
      sockets: bound to the address.
      target: in a registry, to follow; None for nothing.
      number: of the version that `policy` is.
      tell: called with lines for the user.
    """
    with (
        handled_by(_nothing, signal.SIGTERM, signal.SIGINT),
        asyncio.Runner(loop_factory=_loop_factory()) as runner,
    ):
        runner.run(_serve(policy, options, sockets, target, number, tell))


async def _serve(
    policy: ServedPolicy,
    options: ServerOptions,
    sockets: socket.socket,
    target: RegistryTarget | None,
    number: int,
    tell: Callable[[str], None],
) -> None:
    import uvicorn

    service = PolicyService(policy, options)
    application = ServingApplication(service, options, lambda: not server.should_exit)
    config = uvicorn.Config(
        application,
        http=protocol(),
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=round(max(5.0, options.idle_seconds)),  # as long as its session
        timeout_graceful_shutdown=max(1, round(options.drain_seconds)),
    )
    server = uvicorn.Server(config)
    tasks = [asyncio.create_task(_sweep(service))]
    if target is not None and options.follow_seconds:
        tasks.append(asyncio.create_task(_follow(service, target, number, options, tell)))
    # A search for garbage among what was imported, over 100,000 objects, holds all requests up for 60 ms.
    gc.collect()
    gc.freeze()
    sockets.listen(_BACKLOG)  # From here on every connection is answered.
    tell(f"serving     {policy.facts.label} on {web.url(options.host, sockets)}")
    try:
        await server.serve(sockets=[sockets])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        service.batcher.close()


async def _sweep(service: PolicyService) -> None:
    """Ends unused sessions, also without requests."""
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        service.sessions.sweep()


async def _follow(
    service: PolicyService,
    target: RegistryTarget,
    number: int,
    options: ServerOptions,
    tell: Callable[[str], None],
) -> None:
    """Takes over the version that the stage points at, as it moves; one that cannot be served is left out."""
    refused: int | None = None
    said = ""
    while True:
        await asyncio.sleep(options.follow_seconds)
        wanted = number
        try:
            wanted = await asyncio.to_thread(target.number)
            if wanted in (number, refused):
                continue
            policy = await asyncio.to_thread(target.read, wanted, options)
            service.take_over(policy)
        except (ConfigError, Refusal, RunError, OSError) as error:
            # A storage error may not recur; a version never changes.
            if isinstance(error, ConfigError | Refusal):
                refused = wanted
            if str(error) != said:
                said = str(error)
                tell(f"not taken   {error}; {service.policy.facts.label} stays")
            continue
        number = wanted
        refused = None
        said = ""
        tell(f"taken over  {policy.facts.label}, by {policy.timings[0].kind}")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None


def _nothing(signum: int, frame: FrameType | None) -> None:
    """uvicorn raises the signal again after it has ended in order; here that is a success."""
    print(end="", flush=True)


class _WholeAnswers:
    """The transport of a connection that sends the head of an answer and its body at once.

    Two writes are two calls of the system, and wake the client twice.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing
        self._held: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._held.append(data)
        if data.startswith(b"HTTP/1.1 100 "):  # The client waits for it before it sends its body.
            self.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def flush(self) -> None:
        if self._held:
            self._transport.write(b"".join(self._held))
            self._held.clear()

    def close(self) -> None:
        self.flush()
        self._transport.close()


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
            self._answers = _WholeAnswers(transport)
            self._expect_bytes()

        def data_received(self, data: bytes) -> None:
            if self._in_head:
                self._head += len(data)
            super().data_received(data)
            # What is left of the head after this piece counts; a body behind it does not.
            if self._in_head and self._head > _LARGEST_HEAD and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")
            if self._in_head and self._timer is None:
                self._expect_bytes()
            self._bound_pause()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            self._in_head = True
            self._head = 0
            self._cancel()  # Of a head that does not end with this piece the time begins after it.
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._in_body = True
            self._cancel()
            super().on_headers_complete()
            self.cycle.transport = self._answers  # type: ignore[assignment]

        def on_message_complete(self) -> None:
            self._in_body = False
            self._cancel()
            self.scope["state"][HAS_ARRIVED] = True
            super().on_message_complete()

        def on_response_complete(self) -> None:
            self._answers.flush()
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
