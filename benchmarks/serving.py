"""Latency and throughput of `jaxrl serve`, beside a bare loop of `jaxrl.load` in one process.

Trains an MLP and an LSTM for a moment, deploys them, and lets 1, 8 and 64 clients on this machine ask for
actions, each as soon as it has the last answer. The clients are one more process, which takes its share of
the machine.

With `--within` clients ask at random times of a given rate instead, as people and robots do, and the table
has the highest rate at which 99 of 100 answers come within so many milliseconds of the time at which the
client meant to ask: a server that falls behind is charged for all who wait (Schroeder et al. 2006, "Open
Versus Closed: A Cautionary Tale").

    python benchmarks/serving.py --output=runs/serving
    python benchmarks/serving.py --output=runs/serving --clients=100 --within=5
    python benchmarks/serving.py --output=runs/serving --soak=240 --clients=8 --networks=lstm
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_OBS = [0.01, -0.02]
_FIELDS = {"mlp": "none", "lstm": "lstm"}
_MOST_REQUESTS = 2_000_000


@dataclasses.dataclass(frozen=True)
class Row:
    """Milliseconds, answers per second, and milliseconds of a core's time that an answer takes the server.

    `way` is `bare` for a loop without a server, `serve` for clients that wait for answers, `rate` for clients
    that ask at a rate, and `empty` for clients that wait for an application that does nothing.
    """

    network: str
    way: str
    clients: int
    p50: float
    p99: float
    rate: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--networks", default="mlp,lstm")
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--seconds", default=5.0, type=float, help="of each measurement")
    parser.add_argument(
        "--soak", default=0.0, type=float, help="seconds of load, with memory before and after"
    )
    parser.add_argument(
        "--within", type=float, help="milliseconds: finds the highest rate that is answered so fast"
    )
    parser.add_argument(
        "--empty", action="store_true", help="also an application that does nothing, in the same web server"
    )
    parser.add_argument("--load", help=argparse.SUPPRESS)  # this program as the clients
    parser.add_argument("--serve-nothing", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        print(json.dumps(asyncio.run(_load(json.loads(given.load)))))
        return
    if given.serve_nothing:
        _serve_nothing()
        return
    given.output.mkdir(parents=True, exist_ok=True)
    clients = [int(n) for n in given.clients.split(",")]
    rows: list[Row] = []
    soaks = []
    if given.empty:
        with _server(sys.executable, __file__, "--output=.", "--serve-nothing") as (port, pid, _):
            asked = {"port": port, "seconds": given.seconds}
            rows += [_measured("-", {**asked, "clients": count}, pid, way="empty") for count in clients]
    for network in given.networks.split(","):
        run = _run_of(network, given.output)
        if not given.soak:
            rows.append(_bare(network, run, given.seconds))
        model = f"{given.output / 'models'}:{network}@latest"
        with _server(sys.executable, "-m", "jaxrl", "serve", model, "--port=0") as (port, pid, said):
            print(said, flush=True)
            for count in clients:
                asked = {"port": port, "clients": count, "seconds": given.soak or given.seconds}
                before = _memory(pid)
                rows.append(_measured(network, asked, pid))
                if given.soak:
                    row = dataclasses.asdict(rows[-1])
                    soaks.append({**asked, **row, "before": before, "after": _memory(pid)})
                    print(json.dumps(soaks[-1]), flush=True)
                if given.within is not None:
                    rows.append(_highest_rate(rows[-1], asked, pid, given.within))
    record = {
        "rows": [dataclasses.asdict(row) for row in rows],
        "soaks": soaks,
        "machine": f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}",
        "load_average": os.getloadavg(),
        "command": sys.argv,
    }
    name = "soak" if given.soak else "serving"
    (given.output / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    (given.output / f"{name}.md").write_text(_table(rows))
    print(_table(rows))


def _run_of(network: str, output: Path) -> Path:
    """The folder of a run, trained for a moment and deployed, unless it is there already."""
    run = output / "runs" / network
    if not (run / "summary.json").exists():
        core = f"--config.network.core={_FIELDS[network]}"
        _jaxrl("train", "ppo", core, "--config.stop.steps=1", f"--workdir={run}")
        _jaxrl("deploy", str(run), f"--to={output / 'models'}", "--episodes=0")
    return run


def _jaxrl(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "jaxrl", *arguments], check=True, stdout=subprocess.DEVNULL)


def _bare(network: str, run: Path, seconds: float) -> Row:
    """One observation after the other through `jaxrl.load(run).act`."""
    import jaxrl

    policy = jaxrl.load(run)
    obs = np.array(_OBS, np.float32)
    _, carry = policy.act(obs)
    times = []
    used, end = time.process_time(), time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        _, carry = policy.act(obs, carry)
        times.append(time.perf_counter() - start)
    cpu = 1e3 * (time.process_time() - used) / len(times)
    return Row(network, "bare", 1, *_summary(times, seconds), cpu)


@contextlib.contextmanager
def _server(*command: str) -> Iterator[tuple[int, int, str]]:
    """(port, process id, what it said of its runtimes)."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if match := re.search(r":(\d+)$", line.strip()):
                break
        else:
            raise RuntimeError("".join(lines))
        try:
            yield int(match[1]), process.pid, "".join(lines)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _serve_nothing() -> None:
    """Answers every request with the same action: what a server in Python, and these clients, can reach."""
    import uvicorn

    body = json.dumps({"action": 0}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]

    async def application(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    quiet = {"access_log": False, "log_level": "error", "proxy_headers": False, "server_header": False}
    config = uvicorn.Config(application, http="httptools", ws="none", lifespan="off", **quiet)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        uvicorn.Server(config).run(sockets=[listening])


def _measured(network: str, asked: dict[str, Any], pid: int, way: str = "") -> Row:
    used = _cpu(pid)
    found = _clients(asked)
    cpu = 1e3 * (_cpu(pid) - used) / found["requests"]
    way = way or ("rate" if "rate" in asked else "serve")
    row = Row(network, way, asked["clients"], found["p50"], found["p99"], found["rate"], cpu)
    print(row, flush=True)
    return row


def _highest_rate(closed: Row, asked: dict[str, Any], pid: int, within: float) -> Row:
    """The first of falling rates, from that of waiting clients on, at which p99 is `within` milliseconds."""
    for share in range(20, 0, -1):
        row = _measured(closed.network, {**asked, "rate": closed.rate * share / 20}, pid)
        if row.p99 <= within:
            return row
    raise RuntimeError(f"no rate is answered within {within} ms")


def _clients(asked: dict[str, Any]) -> dict[str, float]:
    command = [sys.executable, __file__, "--output=.", f"--load={json.dumps(asked)}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


async def _load(asked: dict[str, Any]) -> dict[str, float]:
    """Clients with a connection each; each asks as soon as it has the last answer, or at times of a rate."""
    times: list[float] = []
    rate = asked.get("rate")

    async def client(index: int, end: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", asked["port"])

        async def ask(path: str, content: dict[str, Any]) -> bytes:
            body = json.dumps(content).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in answer[:20]:
                raise RuntimeError(answer.decode())
            return await reader.readexactly(
                int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            )

        name = f"client{index}"
        rng = np.random.default_rng(index)
        await ask("/reset", {"session": name})
        start = time.perf_counter()
        while start < end and len(times) < _MOST_REQUESTS:
            if rate:
                start += rng.exponential(asked["clients"] / rate)
                await asyncio.sleep(start - time.perf_counter())
            await ask("/act", {"session": name, "obs": _OBS})
            times.append(time.perf_counter() - start)
            if not rate:
                start = time.perf_counter()
        writer.close()

    end = time.perf_counter() + asked["seconds"]
    await asyncio.gather(*(client(i, end) for i in range(asked["clients"])))
    p50, p99, answered = _summary(times, asked["seconds"])
    return {"p50": p50, "p99": p99, "rate": answered, "requests": len(times)}


def _summary(times: list[float], seconds: float) -> tuple[float, float, float]:
    p50, p99 = np.percentile(times, [50, 99])
    return 1e3 * float(p50), 1e3 * float(p99), len(times) / seconds


def _cpu(pid: int) -> float:
    """Seconds of cores that a process has used."""
    import psutil

    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _memory(pid: int) -> float:
    """Resident MiB."""
    import psutil

    return float(psutil.Process(pid).memory_info().rss / 2**20)


def _table(rows: list[Row]) -> str:
    lines = [
        "| network | way | clients | p50 ms | p99 ms | actions/s | of the bare loop | core ms an action |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for row in rows:
        bare = next((r.rate for r in rows if r.network == row.network and r.way == "bare"), None)
        share = f"{row.rate / bare:.2f}" if bare else "-"
        shown = f"{row.p50:.3f} | {row.p99:.3f} | {row.rate:,.0f} | {share} | {row.cpu:.3f} |"
        lines.append(f"| {row.network} | {row.way} | {row.clients} | {shown}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
