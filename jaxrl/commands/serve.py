"""jaxrl serve MODEL: answers requests for actions over HTTP.

MODEL is the folder of a model or a run, or [REGISTRY:]NAME@VERSION, where
VERSION is a number, latest, staging or production and REGISTRY a folder, gs://
or s3:// (default: results/models). The policy is run by numpy, ONNX Runtime or
jax, whichever is fastest here. POST /reset begins a session, POST /act acts;
/healthz, /readyz, /metrics, /spec and /openapi.json answer GET. SIGTERM
finishes requests in progress and ends with exit code 0. JAXRL_SERVE_TOKEN in
the environment is a token that requests must send. docs/serving.md has the
details.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from jaxrl.commands import command_line
from jaxrl.commands.arguments import CHECKPOINT, TRUST, Argument, CommandArguments, flag
from jaxrl.config import ConfigError
from jaxrl.config.errors import did_you_mean
from jaxrl.parallel import tpu_slices

RUNTIMES = ("numpy", "onnx", "stablehlo")


class _Flags(CommandArguments):
    model = Argument("MODEL", "what to serve")
    host: str = flag(
        "--host=ADDRESS", "where to listen (default: {default}); others need a token", "127.0.0.1"
    )
    port: int = flag("--port=N", "the port (default: {default}; 0 for any free one)", 8000, within=(0, 65535))
    runtime: str = flag("--runtime=R", f"{', '.join(RUNTIMES)} (default: the fastest)", "")
    largest_batch: int = flag(
        "--largest_batch=N", "rows of one request, and of one pass (default: {default})", 64, within=(1, 4096)
    )
    wait_ms: float = flag(
        "--wait_ms=T",
        "how long a request may wait for others to share its pass (default: {default}: no longer than "
        "those take that have arrived)",
        0.0,
        within=(0, 1000),
    )
    sessions: int = flag(
        "--sessions=N", "most sessions at a time (default: {default})", 10_000, within=(1, 2**20)
    )
    idle_seconds: float = flag(
        "--idle_seconds=S",
        "a session that is not used for so long ends (default: {default})",
        600.0,
        within=(0.1, command_line.LONGEST),
    )
    follow: bool = flag("--follow", "take over the version that the stage points at, as it moves")
    follow_seconds: float = flag(
        "--follow_seconds=S",
        "pause between looks at the registry (default: {default})",
        2.0,
        within=(0.05, command_line.LONGEST),
    )
    checkpoint: str = replace(CHECKPOINT, help="of a run: best (default), latest, or a step")
    trust: bool = TRUST


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    if len(left) != 1:
        raise ConfigError("one MODEL" if left else "`MODEL` is missing: name a model, a run or NAME@VERSION")
    if flags.runtime and flags.runtime not in RUNTIMES:
        raise ConfigError(f"`--runtime` (={flags.runtime!r}) is none{did_you_mean(flags.runtime, RUNTIMES)}")

    from jaxrl.inference.serving import ServerOptions, served_policy, server
    from jaxrl.runs import web

    tpu_slices.hush_libtpu()
    options = ServerOptions(
        host=flags.host,
        port=flags.port,
        runtime=flags.runtime,
        largest_batch=flags.largest_batch,
        wait_seconds=flags.wait_ms / 1e3,
        sessions=flags.sessions,
        idle_seconds=flags.idle_seconds,
        follow_seconds=flags.follow_seconds if flags.follow else 0.0,
    )
    server.check_options(options)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    named = served_policy.is_named(left[0])
    target = served_policy.RegistryTarget.parse(left[0]) if named else None
    if flags.follow and (target is None or not target.moves):
        raise ConfigError(f"`--follow` needs a stage, NAME@STAGE; `MODEL` is {left[0]!r}")
    number = target.number() if target else 0
    with web.bind(options.host, options.port) as listening:
        if target is not None:
            policy = target.read(number, options)
        else:
            policy = served_policy.read_folder(left[0], flags.checkpoint, flags.trust, options)
        for timing in policy.timings:
            command_line.say(f"{'runtime' if timing is policy.timings[0] else 'slower':<11} {timing}")
        server.serve(policy, options, listening, target, number, command_line.say)
    print("ended", flush=True)
    return 0
