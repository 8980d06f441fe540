"""The HTTP side of a server, as an ASGI application: paths, sizes, who may ask, errors, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import json
import logging
import math
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from jaxrl.config.text import one_line
from jaxrl.inference.serving import Refusal, ServerOptions, messages, openapi
from jaxrl.inference.serving.arrays_of_spaces import nest
from jaxrl.inference.serving.service import PolicyService
from jaxrl.runs import web

if TYPE_CHECKING:
    from prometheus_client import Metric

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_PAGES = ("/healthz", "/readyz", "/metrics", "/spec", "/openapi.json", "/docs")
_PATHS = {"/act": "POST", "/reset": "POST"} | dict.fromkeys(_PAGES, "GET")
_OPEN = ("/healthz", "/readyz")  # open to all clients, without a token
_QUERY: dict[str, Callable[[str], Any]] = {
    "session": str,
    "reset": {"true": True, "false": False}.__getitem__,
}
HAS_ARRIVED = "body_has_arrived"  # in the state of a request whose body needs no limit on its time
_BODY_SECONDS = 30.0  # for a body to arrive
_LEAST_BODY = 2**16
_BYTES_AN_ELEMENT = 32  # of JSON
_MOST_SHOWN = 64  # numbers of an observation on the page for people

log = logging.getLogger(__name__)
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_PREFIX = "jaxrl_serve"


class ServingApplication:
    """Answers one request after the other; `is_ready` is False once the server is about to end."""

    def __init__(self, service: PolicyService, options: ServerOptions, is_ready: Callable[[], bool]) -> None:
        self.service = service
        self._options = options
        self._is_ready = is_ready
        self._metrics = ServerMetrics(service)
        elements = sum(math.prod(array.shape) for array in service.policy.reader.arrays)
        elements += (service.policy.facts.mask_size or 0) + 16
        self.largest_body = max(_LEAST_BODY, _BYTES_AN_ELEMENT * elements * options.largest_batch)
        self._token = options.token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        shown = messages.JSON
        try:
            headers: dict[bytes, bytes] = dict(scope["headers"])
            self._admit(scope, headers)
            if scope["method"] == "POST":
                kind = messages.kind_of(headers.get(b"content-type", b"").decode("latin-1"))
                body = await self._body(scope, headers, receive)
                content = await self._post(path, kind, body, scope["query_string"])
                status, shown = 200, kind
            else:
                status, shown, content = self._get(path)
        except Refusal as refusal:
            status, content = refusal.status, web.error(refusal)
        except Exception as error:  # a fault of this program or of the policy: the server continues
            log.error("%s failed: %s", one_line(path)[:100], one_line(repr(error)))
            status, content = 500, web.error("the policy could not act; the log says more")
        self._metrics.requests(path if path in _PATHS else "other", status).inc()
        await _send(send, status, shown, content)

    def _admit(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raises Refusal for a wrong path or method, or a client that may not ask."""
        path = scope["path"]
        method = scope["method"]
        if path not in _PATHS:
            raise Refusal(404, f"no such path; there are {', '.join(_PATHS)}")
        if method != _PATHS[path]:
            raise Refusal(405, f"{path} takes {_PATHS[path]}")
        if self._token and path not in _OPEN:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, b"Bearer " + self._token):
                raise Refusal(401, "`Authorization: Bearer TOKEN` is missing, or it is another token")
        elif not self._token and not web.names_loopback(headers.get(b"host", b"").decode("latin-1")):
            raise Refusal(403, "`Host` must be this machine's loopback address: the server has no token")

    async def _body(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and (len(length) > 15 or int(length) > self.largest_body):
            raise self._too_large()
        if HAS_ARRIVED in scope.get("state", ()):
            return await self._received(receive)
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                return await self._received(receive)
        except TimeoutError as error:
            raise Refusal(408, f"the body did not come within {_BODY_SECONDS:.0f} s") from error

    async def _received(self, receive: Receive) -> bytes:
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise Refusal(400, "the body is cut off")
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.largest_body:
                raise self._too_large()
        return bytes(body)

    def _too_large(self) -> Refusal:
        return Refusal(413, f"the body must be at most {self.largest_body} bytes")

    async def _post(self, path: str, kind: str, body: bytes, query: bytes) -> bytes:
        content = messages.decode(kind, body) | _query_fields(query)
        if path == "/reset":
            answer = await self.service.reset(content)
            return messages.encode(messages.JSON if kind == messages.NPY else kind, answer)
        start = time.perf_counter()
        found = await self.service.act(content)
        self._metrics.act_seconds.observe(time.perf_counter() - start)
        return messages.encode(kind, found)

    def _get(self, path: str) -> tuple[int, str, bytes]:
        if path == "/healthz":
            return 200, messages.JSON, b'{"status": "alive"}'
        if path == "/readyz":
            if self._is_ready():
                return 200, messages.JSON, b'{"status": "ready"}'
            return 503, messages.JSON, b'{"status": "ending"}'
        if path == "/metrics":
            return 200, "text/plain; version=0.0.4", self._metrics.text()
        facts = openapi.describe(self.service.policy, self._options, self.largest_body)
        if path == "/docs":
            page = openapi.page(facts, openapi.document(facts), self._example(), bool(self._token))
            return 200, "text/html; charset=utf-8", page.encode()
        content = facts if path == "/spec" else openapi.document(facts)
        return 200, messages.JSON, json.dumps(content).encode()

    def _example(self) -> Any:
        """An observation of zeros, as JSON values; None for a large one."""
        reader = self.service.policy.reader
        if sum(math.prod(array.shape) for array in reader.arrays) > _MOST_SHOWN:
            return None
        return nest({name: x[0].tolist() for name, x in reader.zeros(1).items()}, reader.arrays)


def _query_fields(query: bytes) -> dict[str, Any]:
    """`session` and `reset` of the address, for bodies that are arrays alone."""
    if not query:
        return {}
    with contextlib.suppress(ValueError, KeyError):
        found = parse_qsl(query.decode("ascii"), strict_parsing=True, max_num_fields=4)
        content = {name: _QUERY[name](value) for name, value in found}
        if len(content) == len(found):
            return content
    raise Refusal(400, "the address must end in ?session=ID&reset=true, or a part of that")


async def _send(send: Send, status: int, kind: str, content: bytes) -> None:
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", b"%d" % len(content)),
        (b"x-content-type-options", b"nosniff"),
    ]
    if kind.startswith("text/html"):
        headers.append((b"content-security-policy", openapi.POLICY.encode()))
    if status == 413 or status == 408:
        headers.append((b"connection", b"close"))  # The rest of the body is not read.
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class ServerMetrics:
    """Counts of requests, by path and status, how long actions took, and what a service counts itself."""

    def __init__(self, service: PolicyService) -> None:
        from prometheus_client import Counter, Histogram

        self._service = service
        self._started = time.time()
        self._requests = Counter(f"{_PREFIX}_requests", "Requests", ["path", "status"], registry=None)
        self.requests = functools.cache(self._requests.labels)  # which makes text of them and locks
        seconds = f"{_PREFIX}_act_seconds"
        self.act_seconds = Histogram(seconds, "Seconds to act", buckets=_BUCKETS, registry=None)

    def text(self) -> bytes:
        """The text format of Prometheus, version 0.0.4."""
        from prometheus_client import generate_latest

        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """All numbers, as prometheus_client asks for them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        service = self._service
        service.sessions.sweep()
        yield from self._requests.collect()
        yield from self.act_seconds.collect()
        versions = service.sessions.policies() | {service.policy}
        for family, name, value, shown in (
            (CounterMetricFamily, "passes", service.batcher.passes, "Passes through the policy"),
            (CounterMetricFamily, "rows", service.batcher.rows, "Observations in them"),
            (CounterMetricFamily, "sessions_expired", service.sessions.expired, "Sessions that ended unused"),
            (CounterMetricFamily, "versions_taken_over", service.taken_over, "New versions of the model"),
            (GaugeMetricFamily, "sessions", len(service.sessions), "Sessions"),
            (GaugeMetricFamily, "versions", len(versions), "Versions of the model in use"),
            (GaugeMetricFamily, "peak_memory_bytes", _peak_memory(), "Most memory of this process so far"),
            (GaugeMetricFamily, "start_time_seconds", self._started, "When the server began"),
        ):
            yield family(f"{_PREFIX}_{name}", shown, value)
        model = GaugeMetricFamily(f"{_PREFIX}_model", "The model of new episodes", labels=["model"])
        model.add_metric([service.policy.facts.label], 1)
        yield model


def _peak_memory() -> int:
    """Bytes; Linux counts kilobytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
