"""What the servers share."""

from __future__ import annotations

import json
import socket

import pytest

from jaxrl.config import ConfigError, installation
from jaxrl.runs import web


@pytest.mark.parametrize("header", ["127.0.0.1", "127.0.0.1:8050", "localhost:1", "[::1]", "[::1]:8050"])
def test_hosts_of_this_machine(header: str) -> None:
    assert web.names_loopback(header)


@pytest.mark.parametrize(
    "header",
    ["", ":80", "evil.example", "127.0.0.1.evil.example:8050", "evil.example:127.0.0.1", "[::2]:80", "::1"],
)
def test_hosts_of_others(header: str) -> None:
    assert not web.names_loopback(header)


def test_an_address_is_taken_once() -> None:
    with web.bind("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        assert web.url("127.0.0.1", first) == f"http://127.0.0.1:{port}"
        assert web.url("::1", first) == f"http://[::1]:{port}"
        with pytest.raises(ConfigError, match=f"`--port` \\(={port}\\): Address already in use"):
            web.bind("127.0.0.1", port)
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass


def test_what_is_missing_is_named_with_its_extra() -> None:
    installation.require("`jaxrl serve`", "serve", "json")
    with pytest.raises(
        ConfigError, match=r"^`jaxrl serve` needs the `serve` extra: .*\[serve\].* \(no nothing_here\)$"
    ):
        installation.require("`jaxrl serve`", "serve", "json", "nothing_here")


def test_an_error_is_one_line() -> None:
    assert json.loads(web.error("a\nb")) == {"error": "a b"}
