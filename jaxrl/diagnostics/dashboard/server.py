"""The server of the dashboard: a page, its script, and what that asks for as JSON. Nothing can be written."""

from __future__ import annotations

import importlib.resources
import importlib.util
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl.config import ConfigError, installation, text
from jaxrl.config.data_files import read_bytes
from jaxrl.diagnostics.dashboard import run_view
from jaxrl.diagnostics.dashboard.collection import RunCollection
from jaxrl.reporting.pages import episode

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_PACKAGES = ("plotly", "starlette", "uvicorn")
_PAGE = Path(__file__).parent / "page"
_LONGEST = 20_000  # characters of what a request asks for
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
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


def require_packages() -> None:
    """Raises ConfigError if the `dashboard` extra is not installed."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        command = installation.command("dashboard")
        raise ConfigError(f"the dashboard needs the `dashboard` extra: {command} (no {missing[0]})")


def application(runs: RunCollection, host: str) -> Starlette:
    """The application, for any server of ASGI.

    Args:
      runs: the runs that it shows.
      host: the address that it listens on. On a loopback address it answers requests to that alone, so that
        a page from elsewhere whose name leads here reads nothing.
    """
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    def json_route(path: str, answer: Callable[[Request], Any]) -> Route:
        async def endpoint(request: Request) -> Response:
            return await _answer(request, answer)

        return Route(path, endpoint, methods=["GET"])

    async def film(request: Request) -> Response:
        return await run_in_threadpool(_film, runs, request)

    async def episode_page(request: Request) -> Response:
        return await run_in_threadpool(_episode, runs, request)

    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        named = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
        if host in _LOOPBACK and named not in _LOOPBACK:
            return PlainTextResponse("this dashboard answers on this machine alone\n", 403)
        response = await call_next(request)
        response.headers.update({name: x for name, x in _HEADERS.items() if name not in response.headers})
        return response

    machine = _Machine()
    routes = [
        Route("/", _file("index.html", "text/html"), methods=["GET"]),
        Route("/app.js", _file("app.js", "text/javascript"), methods=["GET"]),
        Route("/run.js", _file("run.js", "text/javascript"), methods=["GET"]),
        Route("/charts.js", _file("charts.js", "text/javascript"), methods=["GET"]),
        Route("/style.css", _file("style.css", "text/css"), methods=["GET"]),
        Route("/plotly.js", _plotly, methods=["GET"]),
        json_route("/api/runs", lambda request: runs.table(_text(request, "q"))),
        json_route("/api/run", lambda request: _detail(runs, request)),
        json_route("/api/metrics", lambda request: runs.metrics(_names(request))),
        json_route("/api/curves", lambda request: runs.curves(_names(request), _text(request, "metric"))),
        json_route("/api/difference", lambda request: runs.difference(_names(request))),
        json_route("/api/searches", lambda request: runs.searches()),
        json_route("/api/search", lambda request: runs.trials(_text(request, "name"))),
        json_route("/api/machine", lambda request: machine.read()),
        Route("/film", film, methods=["GET"]),
        Route("/episode", episode_page, methods=["GET"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)])


def serve(folder: str, host: str, port: int, interval: float, say: Callable[[str], None]) -> None:
    """Serves until a signal.

    Raises:
      ConfigError: the extra is missing, or the address cannot be listened on.
    """
    require_packages()
    import socket

    import uvicorn

    runs = RunCollection(folder, interval)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            listening.listen()
        except OSError as error:
            raise ConfigError(f"`--host` (={host}), `--port` (={port}): {error.strerror or error}") from error
        runs.start()
        shown = f"[{host}]" if ":" in host else host
        say(f"dashboard of {folder}: http://{shown}:{listening.getsockname()[1]}")
        if host not in _LOOPBACK:
            say("anyone who reaches this address can read the runs: there is no password")
        config = uvicorn.Config(
            application(runs, host), log_level="warning", access_log=False, lifespan="off"
        )
        uvicorn.Server(config).run(sockets=[listening])
    runs.stop()


async def _answer(request: Request, answer: Callable[[Request], Any]) -> Response:
    """The result of a function as JSON; it reads files, and so has a thread."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse, Response

    try:
        found = await run_in_threadpool(answer, request)
    except (ConfigError, OSError) as error:
        return JSONResponse({"error": text.one_line(error)}, 400)
    if found is None:
        return JSONResponse({"error": "there is no such run"}, 404)
    return Response(json.dumps(_finite(found), default=str), media_type="application/json")


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
    """The runs that a request names, each by a `run`."""
    return request.query_params.getlist("run")[:1000]


def _detail(runs: RunCollection, request: Request) -> dict[str, Any] | None:
    run = runs.run(_text(request, "name"))
    return None if run is None else run.detail()


def _film(runs: RunCollection, request: Request) -> Response:
    """A video that a run is known to have: a request names no path."""
    from starlette.responses import PlainTextResponse, Response

    run = runs.run(_text(request, "run"))
    file = run.files(run_view.FILMS).get(_text(request, "name")) if run is not None else None
    if file is None:
        return PlainTextResponse("there is no such video\n", 404)
    return Response(file.read_bytes(), media_type=_KINDS[file.suffix])


def _episode(runs: RunCollection, request: Request) -> Response:
    """The page of an episode, `jaxrl evaluate --inspect`, that lies in a run's folder."""
    from starlette.responses import PlainTextResponse, Response

    run = runs.run(_text(request, "run"))
    file = run.files(run_view.EPISODES).get(_text(request, "name")) if run is not None else None
    if file is None:
        return PlainTextResponse("there is no such episode\n", 404)
    try:
        page = read_bytes(file, _LARGEST_EPISODE)
    except (OSError, ValueError) as error:
        return PlainTextResponse(f"{text.one_line(error)}\n", 400)
    policy = _EPISODE_POLICY.format(source=episode.script_source())
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": policy})


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


def _file(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        from starlette.responses import Response

        return Response((_PAGE / name).read_bytes(), media_type=kind)

    return endpoint


async def _plotly(request: Request) -> Response:
    """Plotly's script from its package: no page on the web is asked for it."""
    from starlette.responses import Response

    script = importlib.resources.files("plotly") / "package_data" / "plotly.min.js"
    return Response(script.read_bytes(), media_type="text/javascript")
