"""`jaxrl serve` as a process: clients, malformed requests, new versions, signals and kills."""

from __future__ import annotations

import gc
import html
import http.client
import io
import itertools
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgpack
import numpy as np
import pytest

import jaxrl
from jaxrl.inference.numpy_policy import NumpyPolicy
from jaxrl.inference.serving import ServerOptions, served_policy
from jaxrl.inference.serving import server as server_module
from jaxrl.runs import web
from jaxrl.runs.registry import ModelRegistry
from tests.commands.refusals import refused
from tests.inference.serving.malformed import RAW, malformed
from tests.inference.serving.models import (
    ROOT,
    ServerProcess,
    altered,
    eventually,
    registry_of,
    serving,
    write_model,
)

STEPS = 20


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> ModelRegistry:
    """Version 2 acts differently, version 3 has other spaces; production is version 1."""
    place = tmp_path_factory.mktemp("models")
    first = write_model(place / "first", env__name="gymnax:CartPole-v1", normalize__observations=True)
    space = {"action": {"type": "discrete", "shape": [], "dtype": "int32", "n": 3}}
    second, third = altered(first, place / "second"), altered(first, place / "third", **space)
    return registry_of(place / "registry", first, second, third)


@pytest.fixture(scope="module")
def server(registry: ModelRegistry) -> Iterator[ServerProcess]:
    arguments = ("--port=0", "--runtime=numpy", "--sessions=200", "--follow", "--follow_seconds=0.1")
    with serving(f"{registry.url}:walker@production", *arguments) as server:
        yield server


def observations(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(STEPS, 4)).astype(np.float32)


def ask(port: int, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """(status, answer) of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    content = body if isinstance(body, bytes) or body is None else json.dumps(body)
    headers = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    connection.request("GET" if body is None else "POST", path, content, headers)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    kind = response.headers["Content-Type"]
    return response.status, json.loads(answer) if kind == "application/json" else answer


def test_a_client_gets_what_the_policy_does(server: ServerProcess, registry: ModelRegistry) -> None:
    with registry.fetch("walker", 1) as folder:
        policy = NumpyPolicy(folder)
    with jaxrl.Client(server.url) as client:
        for seed in (1, 2):
            client.reset()
            carry, expected = policy.initial_carry(1), []
            for t, obs in enumerate(observations(seed)):
                out = policy(obs[None], carry, np.array([t == 0]))
                carry = out["carry"]
                expected.append(int(out["action"][0]))
            assert [client.act(obs) for obs in observations(seed)] == expected
            assert len(set(expected)) == 2
        with pytest.raises(RuntimeError, match="`obs` has the shape"):
            client.act([1.0])
        assert client.act(obs) in (0, 1)  # The session goes on.


def test_searches_for_garbage_leave_what_was_imported_alone(registry: ModelRegistry) -> None:
    searched = -1

    def tell(line: str) -> None:
        nonlocal searched
        if line.startswith("serving"):
            searched = len(gc.get_objects())
            threading.Timer(0.1, signal.raise_signal, (signal.SIGTERM,)).start()

    before = len(gc.get_objects())
    options = ServerOptions(port=0, token="")
    with registry.fetch("walker", 1) as folder, web.bind("127.0.0.1", 0) as listening:
        policy = served_policy.read(folder, "walker", "numpy", options.largest_batch, options.sessions)
        try:
            server_module.serve(policy, options, listening, tell=tell)
        finally:
            gc.unfreeze()
    assert 0 <= searched < before / 10


def test_many_clients_at_once_get_what_each_gets_alone(server: ServerProcess) -> None:
    def play(seed: int) -> list[int]:
        with jaxrl.Client(server.url) as client:
            client.reset()
            return [client.act(obs) for obs in observations(seed)]

    alone = [play(seed) for seed in range(12)]
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(play, range(12))) == alone


def test_arrays_travel_as_npy_and_messagepack(server: ServerProcess) -> None:
    obs = observations(7)
    with jaxrl.Client(server.url) as client:
        client.reset()
        expected = [client.act(x) for x in obs]
    for kind in ("application/x-npy", "application/msgpack"):
        assert ask(server.port, "/reset", {"session": client.session})[0] == 200
        found = []
        for x in obs:
            if kind.endswith("npy"):
                stream = io.BytesIO()
                np.save(stream, x)
                path, body = f"/act?session={client.session}", stream.getvalue()
            else:
                array = {"dtype": "<f4", "shape": [4], "data": x.tobytes()}
                path, body = "/act", msgpack.packb({"session": client.session, "obs": array})
            status, answer = ask(server.port, path, body, Content_Type=kind)
            assert status == 200, answer
            if kind.endswith("npy"):
                found.append(int(np.load(io.BytesIO(answer))))
            else:
                found.append(int(np.frombuffer(msgpack.unpackb(answer)["action"]["data"], np.int32)[0]))
        assert found == expected


def test_it_says_what_it_is(server: ServerProcess) -> None:
    assert ask(server.port, "/healthz") == (200, {"status": "alive"})
    assert ask(server.port, "/readyz") == (200, {"status": "ready"})
    _, spec = ask(server.port, "/spec")
    assert spec["spaces"]["observation"]["shape"] == [4]
    assert (spec["remembers"], spec["runtime"]) == (True, "numpy")
    _, document = ask(server.port, "/openapi.json")
    schema = document["paths"]["/act"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["session", "obs"]
    assert schema["properties"]["obs"]["oneOf"][0]["minItems"] == 4
    _, metrics = ask(server.port, "/metrics")
    lines = dict(line.rsplit(" ", 1) for line in metrics.decode().splitlines() if not line.startswith("#"))
    before = float(lines['jaxrl_serve_requests_total{path="/healthz",status="200"}'])
    ask(server.port, "/healthz")
    _, metrics = ask(server.port, "/metrics")
    assert f'path="/healthz",status="200"}} {before + 1}' in metrics.decode()
    assert float(lines["jaxrl_serve_rows_total"]) >= float(lines["jaxrl_serve_passes_total"])
    assert float(lines['jaxrl_serve_act_seconds_bucket{le="+Inf"}']) == float(
        lines["jaxrl_serve_act_seconds_count"]
    )
    assert lines['jaxrl_serve_model{model="walker version 1"}'] == "1.0"
    others = "sessions_expired_total versions_taken_over_total sessions versions"
    others += " peak_memory_bytes start_time_seconds"
    assert {f"jaxrl_serve_{name}" for name in others.split()} <= lines.keys()


def test_the_page_for_people_has_requests_that_work(server: ServerProcess) -> None:
    status, page = ask(server.port, "/docs")
    assert status == 200
    assert "<script" not in page.decode()
    commands = re.findall("<pre>(curl -H .*?)</pre>", page.decode())
    words = list(map(shlex.split, map(html.unescape, commands)))
    assert {tuple(each[:4]) for each in words} == {("curl", "-H", "Content-Type: application/json", "-d")}
    bodies = {each[-1]: each[4] for each in words}
    assert list(bodies) == ["$SERVER/act", "$SERVER/reset"]
    # Each works by itself, also the first one of a policy with memory.
    status, answer = ask(server.port, "/act", json.loads(bodies["$SERVER/act"]))
    assert (status, answer["action"] in (0, 1)) == (200, True)
    assert ask(server.port, "/reset", json.loads(bodies["$SERVER/reset"]))[0] == 200


def require_refused(port: int, path: str, body: Any, headers: dict[str, str]) -> None:
    status, answer = ask(port, path, body, **{k.replace("-", "_"): v for k, v in headers.items()})
    assert 400 <= status < 500, (path, body, headers, status, answer)
    assert set(answer) == {"error"}
    assert "\n" not in answer["error"]
    assert len(answer["error"]) < 400


def test_malformed_requests_are_refused_in_one_line(server: ServerProcess) -> None:
    """More than 200 of them, between the steps of an episode that they do not change."""
    played = []
    for disturbed in (False, True):
        with jaxrl.Client(server.url) as client:
            client.reset()
            requests = malformed(np.random.default_rng(0), str(client.session))
            actions, count = [], 0
            for obs in observations(11):
                for request in itertools.islice(requests, 11 if disturbed else 0):
                    require_refused(server.port, *request)
                    count += 1
                actions.append(client.act(obs))
            played.append(actions)
    assert count == 11 * STEPS > 200
    assert played[0] == played[1]


@pytest.mark.parametrize("sent", RAW)
def test_bytes_that_are_no_request_are_answered_or_hung_up_on(server: ServerProcess, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1000)
        except TimeoutError:
            raise
        except OSError:  # hung up on: reset, a broken pipe, or connected no more
            answer = b""
    assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200")), answer
    assert ask(server.port, "/healthz")[0] == 200


def test_new_versions_are_taken_over_without_dropping_a_session(
    server: ServerProcess, registry: ModelRegistry
) -> None:
    def model_of(session: str) -> str:
        return ask(server.port, "/act", {"session": session, "obs": [0.1] * 4})[1]["model"]

    ask(server.port, "/reset", {"session": "old"})
    assert model_of("old") == "walker version 1"
    registry.promote("walker", "production", 2)
    server.wait_for("taken over  walker version 2")
    ask(server.port, "/reset", {"session": "new"})
    assert (model_of("old"), model_of("new")) == ("walker version 1", "walker version 2")
    registry.promote("walker", "production", 3)
    server.wait_for("not taken   walker version 3 has other spaces than walker version 2")
    assert model_of("new") == "walker version 2"
    registry.rollback("walker", "production")
    registry.rollback("walker", "production")
    server.wait_for("taken over  walker version 1")
    ask(server.port, "/reset", {"session": "new"})
    assert (model_of("old"), model_of("new")) == ("walker version 1", "walker version 1")


@pytest.mark.slow
def test_sigterm_answers_what_is_in_progress_and_ends_with_0(registry: ModelRegistry) -> None:
    with serving(f"{registry.url}:walker@1", "--port=0", "--runtime=numpy") as server:
        ask(server.port, "/reset", {"session": "a"})
        body = json.dumps({"session": "a", "obs": [0.0] * 4}).encode()
        head = "POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(head.encode() + body[:10])
            time.sleep(0.3)
            server.signal(signal.SIGTERM)
            time.sleep(0.3)
            connection.sendall(body[10:])
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        assert server.ended() == (0, "")
        assert server.said[-1] == "ended\n"


@pytest.mark.slow
def test_a_kill_and_a_restart_on_the_same_port(registry: ModelRegistry) -> None:
    arguments = (f"{registry.url}:walker@1", "--runtime=numpy")
    with serving(*arguments, "--port=0") as server:
        with jaxrl.Client(server.url) as client:
            client.reset()
            expected = [client.act(obs) for obs in observations(5)]
            client.reset()
            assert [client.act(obs) for obs in observations(5)[:10]] == expected[:10]
        server.end(signal.SIGKILL)
        with serving(*arguments, f"--port={server.port}") as again, jaxrl.Client(again.url) as fresh:
            assert again.port == server.port
            fresh.session = client.session
            with pytest.raises(RuntimeError, match="no such session"):
                fresh.act(observations(5)[10])
            fresh.reset()
            assert [fresh.act(obs) for obs in observations(5)] == expected
            # The port is taken.
            command = [sys.executable, "-m", "jaxrl", "serve", *arguments, f"--port={server.port}"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1)
            assert "Address already in use" in done.stderr


@pytest.mark.slow
def test_a_token_is_asked_for(registry: ModelRegistry) -> None:
    arguments = (f"{registry.url}:walker@1", "--port=0", "--runtime=numpy", "--host=127.0.0.1")
    with serving(*arguments, JAXRL_SERVE_TOKEN="secret") as server:
        assert ask(server.port, "/healthz")[0] == 200
        assert ask(server.port, "/metrics")[0] == 401
        for header in ("secret", "Bearer other", "Bearer secret2", "Bearer "):
            status, answer = ask(server.port, "/reset", {}, Authorization=header)
            assert (status, "token" in answer["error"]) == (401, True)
        with jaxrl.Client(server.url, token="secret") as client:
            client.reset()
            assert client.act([0.0] * 4) in (0, 1)
        assert "secret" not in "".join(server.said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "`MODEL` is missing"),
        (("none",), "`MODEL` (='none') is no folder"),
        (("REGISTRY:walker@9",), "has no version 9"),
        (("REGISTRY:walkr@1",), "did you mean `walker`"),
        (("REGISTRY:walker@1", "--host=0.0.0.0"), "set JAXRL_SERVE_TOKEN"),
        (("REGISTRY:walker@1", "--follow"), "`--follow` needs a stage"),
        (("REGISTRY:walker@1", "--runtime=onxx"), "did you mean `onnx`"),
        (("REGISTRY:walker@2", "--runtime=onnx"), "has no such form"),
        (("REGISTRY:walker@1", "--largest_batch=0"), "largest_batch"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    registry: ModelRegistry,
    arguments: tuple[str, ...],
    said: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    monkeypatch.delenv("JAXRL_SERVE_TOKEN", raising=False)
    given = [x.replace("REGISTRY", registry.url) for x in arguments]
    assert said in refused(capfd, "serve", "--port=0", *given)


def test_the_server_wrote_no_traceback(server: ServerProcess) -> None:
    """Last: of all requests above."""
    eventually(lambda: ask(server.port, "/readyz")[0] == 200)
    code, err = server.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in err
    assert not [line for line in err.splitlines() if "failed" in line]
