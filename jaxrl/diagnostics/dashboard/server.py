"""The server of the dashboard: a page, its script, and the script's data as JSON. Nothing can be written."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etils import epath

from jaxrl.config import installation
from jaxrl.config.data_files import read_bytes
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.diagnostics.dashboard import run_view
from jaxrl.diagnostics.dashboard.collection import RunCollection
from jaxrl.diagnostics.dashboard.run_view import RunView
from jaxrl.reporting.pages.page import script_source
from jaxrl.runs import web

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_PAGE = Path(__file__).parent / "page"
_LONGEST = 20_000  # characters of a request's query
_KINDS = {".gif": "image/gif", ".mp4": "video/mp4"}
_LARGEST_EPISODE = 64 << 20  # bytes
_LEAST_LOAD_SECONDS = 0.5
# Scripts and data come from here alone: a name that gets into the page runs nothing and sends nothing.
# Plotly sets styles of elements.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "media-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
# Of a page in a run's folder: the script of jaxrl's own pages runs, no other, and it reaches nothing.
_EPISODE_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src {source}; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def application(runs: RunCollection, host: str) -> Starlette:
    """The application, for any server of ASGI.

    Args:
      runs: the runs that it shows.
      host: the address that it listens on. On a loopback address it answers requests to that alone, so that
        a page from elsewhere whose name leads here reads nothing.
    """
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    def data(path: str, answer: Callable[[Request], Any]) -> Route:
        # Starlette runs what is no coroutine in a thread: it reads files.
        def endpoint(request: Request) -> Response:
            return Response(json.dumps(_finite(answer(request)), default=str), media_type="application/json")

        return Route(path, endpoint, methods=["GET"])

    def film(request: Request) -> Response:
        file = _file(runs, request, run_view.FILMS, "film")
        return Response(file.read_bytes(), media_type=_KINDS[file.suffix])

    def episode_page(request: Request) -> Response:
        with errors_as(ConfigError, "", ValueError):
            page = read_bytes(_file(runs, request, run_view.EPISODES, "episode"), _LARGEST_EPISODE)
        policy = _EPISODE_POLICY.format(source=script_source())
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": policy})

    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        if host in web.LOOPBACK and not web.names_loopback(request.headers.get("host", "")):
            return PlainTextResponse("this dashboard answers on this machine alone\n", 403)
        response = await call_next(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    async def refused(request: Request, error: Exception) -> Response:
        said, code = (error.detail, error.status_code) if isinstance(error, HTTPException) else (error, 400)
        return Response(web.error(said), code, media_type="application/json")

    machine = _Machine()
    routes = [
        data("/api/runs", lambda request: runs.table(_text(request, "q"))),
        data("/api/run", lambda request: _run(runs, request, "name").detail()),
        data("/api/metrics", lambda request: runs.metrics(_names(request))),
        data("/api/curves", lambda request: runs.curves(_names(request), _text(request, "metric"))),
        data("/api/difference", lambda request: runs.difference(_names(request))),
        data("/api/searches", lambda request: runs.searches()),
        data("/api/search", lambda request: runs.trials(_text(request, "name"))),
        data("/api/machine", lambda request: machine.read()),
        Route("/film", film, methods=["GET"]),
        Route("/episode", episode_page, methods=["GET"]),
        # Plotly's script from its package: nothing is loaded from the web.
        Mount("/plotly", StaticFiles(packages=[("plotly", "package_data")], follow_symlink=True)),
        Mount("/", StaticFiles(directory=_PAGE, html=True, follow_symlink=True)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
        exception_handlers={ConfigError: refused, OSError: refused, HTTPException: refused},
    )


def serve(folder: str, host: str, port: int, interval: float, say: Callable[[str], None]) -> None:
    """Serves until a signal; ConfigError if the extra is missing, or the address cannot be listened on."""
    installation.require("`jaxrl dashboard`", "dashboard", "plotly", "starlette", "uvicorn")
    import uvicorn

    runs = RunCollection(folder, interval)
    with web.bind(host, port) as listening:
        listening.listen()
        runs.start()
        say(f"dashboard of {folder}: {web.url(host, listening)}")
        if host not in web.LOOPBACK:
            say("anyone who reaches this address can read the runs: there is no password")
        config = uvicorn.Config(
            application(runs, host), log_level="warning", access_log=False, lifespan="off"
        )
        uvicorn.Server(config).run(sockets=[listening])
    runs.stop()


def _finite(value: Any) -> Any:
    """The value with None for NaN and infinities, which JSON has not."""
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {str(name): _finite(x) for name, x in value.items()}
    return [_finite(x) for x in value] if isinstance(value, list | tuple) else value


def _text(request: Request, name: str) -> str:
    given = request.query_params.get(name, "")
    if len(given) > _LONGEST:
        raise ConfigError(f"`{name}` is longer than {_LONGEST} characters")
    return given


def _names(request: Request) -> list[str]:
    return request.query_params.getlist("run")[:1000]


def _run(runs: RunCollection, request: Request, name: str) -> RunView:
    from starlette.exceptions import HTTPException

    if (run := runs.run(_text(request, name))) is None:
        raise HTTPException(404, "this run was deleted or moved, or was never here")
    return run


def _file(runs: RunCollection, request: Request, suffixes: tuple[str, ...], kind: str) -> epath.Path:
    """A file that a run is known to have: a request names no path."""
    from starlette.exceptions import HTTPException

    file = _run(runs, request, "run").files(suffixes).get(_text(request, "name"))
    if file is None:
        raise HTTPException(404, f"there is no such {kind}")
    return file


class _Machine:
    """Load and memory of this machine.

    The load is counted here: psutil's own restarts in each of the threads that answer requests.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._load = 0.0
        self._seen = self._times()

    def read(self) -> dict[str, Any]:
        """The load in percent of all cores is that since the last request, or of the last half second."""
        import psutil

        with self._guard:
            idle, total = self._times()
            idle_before, total_before = self._seen
            if total - total_before >= _LEAST_LOAD_SECONDS * (psutil.cpu_count() or 1):
                self._load = 100 * (1 - (idle - idle_before) / (total - total_before))
                self._seen = idle, total
            load = self._load
        memory = psutil.virtual_memory()
        return {"cores": psutil.cpu_count(), "load": load, "used": memory.used, "memory": memory.total}

    @staticmethod
    def _times() -> tuple[float, float]:
        """(idle, all) seconds of all cores; `guest` seconds are part of `user`."""
        import psutil

        times = psutil.cpu_times()._asdict()
        idle = times["idle"] + times.get("iowait", 0.0)
        return idle, sum(x for name, x in times.items() if not name.startswith("guest"))
