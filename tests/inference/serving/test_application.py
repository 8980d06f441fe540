"""Requests as an ASGI server hands them over: bodies that do not come, and a server that is about to end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from jaxrl.inference.serving import ServerOptions, application, served_policy
from jaxrl.inference.serving.service import PolicyService
from tests.inference.serving.models import write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "walker"
    return write_model(folder, env__name="gymnax:CartPole-v1", normalize__observations=True)


def answer_to(
    model: Path, method: str, path: str, *pieces: dict[str, Any], is_ready: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The beginning of an answer, and its content; after the pieces of a body nothing comes."""
    headers = [(b"host", b"localhost:1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "path": path, "method": method, "headers": headers, "query_string": b""}
    left = list(pieces)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return left.pop(0) if left else await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    policy = served_policy.read(model, model.name, "numpy", 8, 20)
    options = ServerOptions(largest_batch=8, token="")
    service = PolicyService(policy, options)
    asyncio.run(application.ServingApplication(service, options, lambda: is_ready)(scope, receive, send))
    start, body = sent
    return start, json.loads(body["body"])


BEGUN = {"type": "http.request", "body": b"{", "more_body": True}


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [(), (BEGUN,)], ids=["nothing", "its_beginning"])
def test_a_body_that_does_not_come_is_given_up(
    model: Path, monkeypatch: pytest.MonkeyPatch, pieces: tuple[dict[str, Any], ...]
) -> None:
    monkeypatch.setattr(application, "_BODY_SECONDS", 0.05)
    start, content = answer_to(model, "POST", "/act", *pieces)
    assert (start["status"], (b"connection", b"close") in start["headers"]) == (408, True)
    assert content == {"error": "the body did not come within 0 s"}


@pytest.mark.parametrize("pieces", [(), (BEGUN,)], ids=["nothing", "its_beginning"])
def test_a_client_that_leaves_before_its_body_starts_nothing(
    model: Path, pieces: tuple[dict[str, Any], ...]
) -> None:
    start, content = answer_to(model, "POST", "/reset", *pieces, {"type": "http.disconnect"})
    assert (start["status"], content) == (400, {"error": "the body is cut off"})


@pytest.mark.parametrize(("is_ready", "status", "said"), [(True, 200, "ready"), (False, 503, "ending")])
def test_a_server_that_is_about_to_end_is_alive_and_not_ready(
    model: Path, is_ready: bool, status: int, said: str
) -> None:
    start, content = answer_to(model, "GET", "/readyz", is_ready=is_ready)
    assert (start["status"], content) == (status, {"status": said})
    assert answer_to(model, "GET", "/healthz", is_ready=is_ready)[0]["status"] == 200
