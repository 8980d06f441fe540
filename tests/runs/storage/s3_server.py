"""S3 on this machine: moto's server, which may refuse requests. Needs the extra `s3` and moto[s3,server]."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def s3_server(
    refuses: Callable[[dict[str, Any]], int | None] = lambda environ: None,
) -> Iterator[dict[str, str]]:
    """S3 with the empty bucket `runs`, in this process; gives the environment in which clients find it.

    Args:
      refuses: the HTTP status to answer a request with, given its WSGI environment; None to serve it.
    """
    pytest.importorskip("s3fs", reason="needs the extra `s3` and moto[s3,server]")
    pytest.importorskip("moto.server", reason="needs the extra `s3` and moto[s3,server]")
    from moto import settings
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    # Objects and access rules of an earlier server of this process are still there.
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    backend.reset()
    backend.create_bucket("runs", "us-east-1")
    settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")
    app = DomainDispatcherApplication(create_backend_app)

    def serve(environ: dict[str, Any], start_response: Any) -> Any:
        if (status := refuses(environ)) is not None:
            code = "SlowDown" if status == 503 else "AccessDenied"
            start_response(f"{status} {code}", [("Content-Type", "application/xml")])
            return [f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()]
        return app(environ, start_response)

    server = make_server("127.0.0.1", 0, serve, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    yield {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    server.shutdown()
    thread.join()
    server.server_close()
