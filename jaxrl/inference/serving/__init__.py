"""Answers requests for actions over HTTP: the options of a server, and the answer to a refused request."""

from __future__ import annotations

import dataclasses
import os

TOKEN_VARIABLE = "JAXRL_SERVE_TOKEN"


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """The flags of `jaxrl serve`.

    Attributes:
      host, port: where to listen; port 0 is any free one.
      runtime: numpy, onnx or stablehlo; "" for the fastest.
      largest_batch: most rows of one request, and of one pass through the policy.
      wait_seconds: how long a request may wait for others to share its pass; 0 waits for none that is not
        there already.
      sessions: most sessions at a time.
      idle_seconds: a session that is not used for so long ends.
      follow_seconds: pause between looks at the registry; 0 never looks.
      drain_seconds: for requests in progress when the server is stopped.
      token: the token that requests must have; "" for none.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    runtime: str = ""
    largest_batch: int = 64
    wait_seconds: float = 0.0
    sessions: int = 10_000
    idle_seconds: float = 600.0
    follow_seconds: float = 0.0
    drain_seconds: float = 10.0
    token: str = dataclasses.field(default_factory=lambda: os.environ.get(TOKEN_VARIABLE, ""), repr=False)

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach the server."""
        # Here and not above: clients import this package, and need the standard library alone.
        from jaxrl.runs.web import LOOPBACK

        return self.host in LOOPBACK


class Refusal(Exception):
    """A refused request: an HTTP status and one line."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
