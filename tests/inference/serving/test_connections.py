"""What a connection may send before a request is complete."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest
import uvicorn

from jaxrl.inference.serving import server as serving
from jaxrl.inference.serving.application import HAS_ARRIVED

LINE = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
ANSWER = b"HTTP/1.1 20"
ENDED = b"<ended>"


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers once the body is there; of a path that it refuses, at once.

    The status is 202 if the request said from the beginning that its body was there.
    """
    status = 202 if HAS_ARRIVED in scope["state"] else 200
    while scope["path"] != "/refused" and (await receive()).get("more_body"):
        pass
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


def talk(port: int, pieces: tuple[bytes, ...], pause: float, seconds: float) -> bytes:
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
            while more := connection.recv(1000):
                found += more
        except TimeoutError:
            return found
        except ConnectionError:
            pass
    return found + ENDED


def answer_to(*pieces: bytes, pause: float = 0.0, seconds: float = 5.0, idle: float = 0.5) -> bytes:
    """The bytes that a server sends until it ends the connection, or for some seconds; it gets `pieces`."""

    async def run() -> bytes:
        config = uvicorn.Config(
            application,
            http=serving.protocol(),
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=idle,  # type: ignore[arg-type]
        )
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            served = asyncio.create_task(server.serve(sockets=[listening]))
            found = await asyncio.to_thread(talk, listening.getsockname()[1], pieces, pause, seconds)
            server.should_exit = True
            await served
        return found

    return asyncio.run(run())


@pytest.mark.parametrize("lines", [1, 10])
def test_a_large_head_is_hung_up_on(lines: int) -> None:
    fields = [b"X: " + b"y" * (30_000 // lines) + b"\r\n"] * lines
    assert answer_to(LINE, *fields, b"Connection: close\r\n\r\n").startswith(ANSWER)
    found = answer_to(LINE, *fields, *fields, *fields, pause=0.01)
    assert found.endswith(ENDED)
    assert ANSWER not in found


def test_a_large_body_is_no_head() -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n"
    assert answer_to(head, b"x" * 50_000, b"x" * 50_000, pause=0.05).startswith(ANSWER)


def test_a_head_that_does_not_come_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_HEAD_SECONDS", 0.1)
    assert answer_to() == ENDED
    assert answer_to(LINE, *[b"X: y\r\n"] * 5, pause=0.05, seconds=1.0) == ENDED
    # A body and the pause between two requests have other limits.
    slow = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
    found = answer_to(slow, b"12", b"34", LINE + b"\r\n", pause=0.15, seconds=0.1)
    assert found.count(ANSWER) == 2
    assert not found.endswith(ENDED)


@pytest.mark.parametrize(
    ("request_line", "rest"),
    [
        (b"POST /refused", (b"",)),  # The rest of the body never comes.
        (b"POST /refused", (b"x" * 20,)),  # It comes, and no other request does.
        (b"POST /", (b"x" * 20, b"\r\n")),  # No request begins with a blank line.
    ],
)
def test_a_client_that_stops_after_its_answer_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch, request_line: bytes, rest: tuple[bytes, ...]
) -> None:
    monkeypatch.setattr(serving, "_HEAD_SECONDS", 0.1)
    head = request_line + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n"
    assert answer_to(head, *rest, pause=0.02, seconds=3.0, idle=0.1).endswith(ENDED)


def test_a_connection_stays_after_a_body_that_nobody_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_HEAD_SECONDS", 0.2)
    refused = b"POST /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"
    found = answer_to(refused, b"12", b"", LINE + b"\r\n", pause=0.15, seconds=0.1)
    assert (found.count(ANSWER), found.endswith(ENDED)) == (2, False)


def test_a_body_that_is_to_come_is_waited_for_with_a_limit() -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
    for pieces, status in (
        ((head, b"1234"), b"200"),
        ((head + b"12", b"34"), b"200"),
        ((head + b"1234",), b"202"),
    ):
        found = answer_to(*pieces, pause=0.05, seconds=0.2)
        assert found.startswith(b"HTTP/1.1 " + status), (pieces, found)


def test_answers_are_whole_and_a_client_may_ask_before_it_sends() -> None:
    sent: list[bytes] = []

    class Transport:
        is_closing = bool

        def write(self, data: bytes) -> None:
            sent.append(data)

        def close(self) -> None:
            sent.append(ENDED)

    answers = serving._WholeAnswers(Transport())
    answers.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert sent.pop() == b"HTTP/1.1 100 Continue\r\n\r\n"
    for piece in (b"HTTP/1.1 200 OK\r\n\r\n", b"body"):
        answers.write(piece)
    assert not sent
    answers.close()
    assert sent == [b"HTTP/1.1 200 OK\r\n\r\nbody", ENDED]
    # Pieces of one connection, in their order; the body of a HEAD is none.
    asks = b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    found = answer_to(b"POST / HTTP/1.1\r\nHost: localhost\r\n" + asks, b"12", pause=0.05, seconds=0.2)
    assert found.startswith(b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER)
    assert found.endswith(b"ok")
    found = answer_to(b"HEAD" + LINE[3:] + b"\r\n", LINE + b"\r\n", seconds=0.2)
    assert found.count(ANSWER) == 2
