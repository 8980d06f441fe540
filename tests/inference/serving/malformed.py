"""Requests with something wrong in each, and bytes that are no request."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np

POST = b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
RAW = [
    b"GARBAGE\r\n\r\n",
    b"POST /act HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 20_000,
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    POST + b"Content-Length: -5\r\n\r\n",
    POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    POST + b"Content-Length: 900000000\r\n\r\n{",
    POST + b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 2,
    POST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
]
OBS = [0.0] * 4
# The path, the body and the headers of a request.
Request = tuple[str, Any, dict[str, str]]


def malformed(rng: np.random.Generator, known: str) -> Iterator[Request]:
    """Requests with something wrong in each; `known` is a session."""
    yield from _observations(known)
    yield from _sessions(known)
    yield from _fields(known)
    yield from _texts(known)
    yield from _arrays(known)
    yield from _packed(known)
    yield from _addresses(known)
    yield from _random(rng, known)


def _observations(known: str) -> Iterator[Request]:
    wrong_obs = [
        [0.0] * 3, [[0.0] * 4, [0.0] * 3], "text", ["a"] * 4, None, {}, {"x": 1}, 1.0, [], [[]], [None] * 4,
        [float("nan")] * 4, [float("inf"), 0, 0, 0], [1e300] * 4, [10**400, 0, 0, 0], [[[0.0] * 4]],
        [[0.0] * 4] * 65, [True, "x", 0, 0],
    ]  # fmt: skip
    yield from (("/act", {"session": known, "obs": x}, {}) for x in wrong_obs)


def _sessions(known: str) -> Iterator[Request]:
    wrong_sessions = [
        "other",
        "",
        "../x",
        3,
        None,
        [known],
        {"a": 1},
        known + "x",
        "\u2603",
        "x" * 10_000,
        True,
    ]
    yield from (("/act", {"session": x, "obs": OBS}, {}) for x in wrong_sessions)
    yield from (
        ("/reset", {"session": x}, {}) for x in ("a b", "", "/", "x" * 129, 3, [], "\u0000", {"a": 1})
    )
    yield from (("/reset", {"session": x, "end": True}, {}) for x in ("other", None))
    batch = {"obs": [OBS, OBS]}
    yield from (("/act", batch | {"session": x}, {}) for x in (known, [known, known], [known], [known, 3]))


def _fields(known: str) -> Iterator[Request]:
    for key, value in (
        ("reset", 2), ("reset", "yes"), ("reset", [1, 2]), ("reset", None), ("action_mask", [1, 1]),
        ("observation", OBS), ("__class__", 1), ("end", True),
    ):  # fmt: skip
        yield "/act", {"session": known, "obs": OBS, key: value}, {}


def _texts(known: str) -> Iterator[Request]:
    """Bodies that are no such JSON, and JSON that is said to be something else."""
    texts = [
        b"", b"{", b"[1, 2]", b"null", b"3", b'"x"', b"\xff\xfe", b"[" * 50_000, b'{"a":' * 5000, b"NaN",
        b'{"session": "' + known.encode() + b'", "obs": [1e', b"\x00" * 100, b"{}" * 10,
        b'{"obs": ' + b"9" * 5000 + b"}", b'{"obs":' + b"[" * 99 + b"]" * 99 + b"}",
    ]  # fmt: skip
    yield from (("/act", text, {}) for text in texts)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data", "a" * 1000):
        yield "/act", {"session": known, "obs": OBS}, {"Content-Type": kind}


def _arrays(known: str) -> Iterator[Request]:
    """Bodies in numpy's format, and queries beside a good one."""
    npy = io.BytesIO()
    np.save(npy, np.zeros(4, np.float32))
    objects = io.BytesIO()
    np.save(objects, np.array([{}], object), allow_pickle=True)
    big = npy.getvalue().replace(b"(4,)", b"(9999999999999,)")
    arrays = [
        b"", b"\x93NUMPY", npy.getvalue()[:-1], npy.getvalue() + b"x", objects.getvalue(), big,
        b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, b"\x93NUMPY\x09\x00v\x00", npy.getvalue()[:40],
        npy.getvalue().replace(b"<f4", b"|O8"), npy.getvalue().replace(b"(4,)", b"(-4,)"),
    ]  # fmt: skip
    for array in arrays:
        yield f"/act?session={known}", array, {"Content-Type": "application/x-npy"}
    for address in (
        "?session=",
        "?session=a&session=b",
        "?x=1",
        "?reset=2",
        "?%ff",
        "?session=%ff",
        "?&&",
        "?a",
    ):
        yield f"/act{address}", npy.getvalue(), {"Content-Type": "application/x-npy"}


def _packed(known: str) -> Iterator[Request]:
    """Bodies in MessagePack."""
    packed = [
        b"\xc1", b"\x81", b"\xdd\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01", b"\x91" * 3000,
        *(
            msgpack.packb({"session": known, "obs": x})
            for x in (
                {"dtype": "<f4", "shape": [4], "data": b"123"},
                {"dtype": "|O", "shape": [4], "data": b"1" * 32},
                {"dtype": "no such", "shape": [4], "data": b"1" * 16},
                {"dtype": "<f4", "shape": [-4], "data": b"1" * 16},
                {"dtype": "<f4", "shape": "4", "data": b"1" * 16},
                {"dtype": "<f4", "shape": [2**60, 2**60], "data": b"1" * 16},
                b"bytes", -1,
            )
        ),
        msgpack.packb({1: 2}), msgpack.packb([1]),
    ]  # fmt: skip
    yield from (("/act", x, {"Content-Type": "application/msgpack"}) for x in packed)


def _addresses(known: str) -> Iterator[Request]:
    """Bodies that are too large, and places that take none."""
    yield "/act", b"x" * 200_000, {}
    yield "/nowhere", {}, {}
    yield "/healthz", {}, {}
    yield "/act", {"session": known, "obs": OBS}, {"Host": "evil.example"}


def _random(rng: np.random.Generator, known: str) -> Iterator[Request]:
    """Random bytes of each kind, and parts of good bodies, without end."""
    while True:
        kind = ("application/json", "application/x-npy", "application/msgpack")[rng.integers(3)]
        yield "/act", rng.bytes(int(rng.integers(1, 200))), {"Content-Type": kind}
        good = json.dumps({"session": known, "obs": OBS}).encode()
        yield "/act", good[: int(rng.integers(1, len(good)))], {}
