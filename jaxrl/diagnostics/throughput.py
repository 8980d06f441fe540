"""The throughput of training on this machine, its parts, and the machine's limit."""

from __future__ import annotations

import contextlib
import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from jaxrl.config import Config, resolve, to_json, versions
from jaxrl.evaluation.policy_function import PolicyFunction
from jaxrl.metrics import reduction, resources
from jaxrl.metrics.clock import Clock
from jaxrl.metrics.reduction import Interval
from jaxrl.parallel.cpu_devices import available_cores
from jaxrl.parallel.sharding import REPLICATED, Topology
from jaxrl.programs.runtime import Runtime
from jaxrl.reporting.writers import JsonlWriter, MultiWriter, TensorBoardWriter, Writer
from jaxrl.runs.checkpoint import Checkpointer
from jaxrl.training.assembly import build_runtime
from jaxrl.training.coordination import Coordinator
from jaxrl.training.dispatch_queue import MAX_IN_FLIGHT, DispatchQueue

WINDOWS = 10
_PAIRS = 7  # pairs of windows with and without the loop of a run
_MATMUL_SIZE = 2048


def measure(config: ConfigDict | Config, device_count: int, seconds: float) -> dict[str, Any]:
    """Measures the speed of training.

    Args:
      seconds: total duration of the windows.

    Returns:
      JSON values: `steps_per_second` (median window), `steps_per_second_range` (slowest, fastest),
      `windows` (all), `seconds_per_iteration` (total, rollout, update; with environments on the host, as
      both may overlap, the updates alone and the remainder; `host`: time added by the loop of a run, which
      dispatches, reads metrics and writes them to metrics.jsonl and TensorBoard), `host_share_range` (that
      time as a share of the total, lowest and highest of several pairs of windows), `shares` (of the time, as
      the metrics `time/*`; with environments on the host only), `compile_seconds`, `peak_memory_bytes` (host
      process, device if reported, compiled program), `matmul` (FLOPs per step, measured rate, the bound in
      steps per second, the fraction that is reached), `save` (seconds that a checkpoint stalls training,
      and their share at the configured interval), `device`, `hardware`, `versions` and the configuration.

    Raises:
      ConfigError: the configuration is wrong.
    """
    if isinstance(config, ConfigDict):
        config = resolve(config, device_count)
    topology = Topology.of(config.device_count)
    clock = Clock()
    coordinator = Coordinator(clock)
    runtime = build_runtime(config, topology, clock, coordinator)
    _, compile_seconds = _timed(runtime.compile)
    state = runtime.prepare(runtime.learning.initial_state())
    alone = functools.partial(train, runtime, runtime.learning.empty_interval())
    state, windows = _windows(alone, state, seconds, config.steps_per_iteration)
    rate = statistics.median(windows)
    per_iteration = config.steps_per_iteration / rate
    count = max(1, round(max(0.2, seconds / WINDOWS) / per_iteration))
    queue = DispatchQueue(runtime, clock, coordinator)
    loop = functools.partial(_run_loop, queue, config, clock, resources.Meter(available_cores()))
    state, added = _loop_shares(alone, loop, state, count)
    shares = runtime.time_shares()
    runtime.close()
    stall = _save_seconds(state)
    rollout = _rollout_seconds(runtime, state, per_iteration)
    matmul_rate = matmul_flops_per_second()
    flops = flops_per_step(runtime, config)
    interval = config.checkpoint_iterations * per_iteration
    return {
        "steps_per_second": rate,
        "steps_per_second_range": [min(windows), max(windows)],
        "windows": windows,
        "seconds_per_iteration": {
            "total": per_iteration,
            "rollout": rollout,
            "update": per_iteration - rollout,
            "host": per_iteration * max(0.0, statistics.median(added)),
        },
        "host_share_range": [min(added), max(added)],
        "shares": shares,
        "compile_seconds": compile_seconds,
        "peak_memory_bytes": resources.peak_memory() | {"program": program_bytes(runtime.compiled)},
        "matmul": {
            "flops_per_step": flops,
            "flops_per_second": matmul_rate,
            "bound": matmul_rate / flops,
            "fraction": rate * flops / matmul_rate,
        },
        "save": {"stall_seconds": stall, "share": stall / (interval + stall) if interval else 0.0},
        "environment": config.env.name,
        "num_envs": config.env.num_envs,
        "device": topology.description,
        "hardware": resources.hardware(available_cores()),
        "versions": versions(),
        "config": to_json(config),
    }


def flops_per_step(runtime: Runtime, config: Config) -> float:
    """Floating-point operations of the network for a step of an environment, acting and learning from it."""
    # Learning from a row: a forward pass, and gradients with respect to inputs and to weights.
    passes = int(config.collects) + 3 * runtime.learning.algorithm.passes_per_step
    of_row = PolicyFunction.without_parameters(runtime.agent, runtime.spec).forward_flops()
    return of_row * passes * config.env.rows / config.env.num_envs


def matmul_flops_per_second() -> float:
    """Total rate of one large float32 product on each device at once; the best of several tries."""
    topology = Topology.of(jax.device_count())

    def product(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 4, lambda _, y: y @ x * (1 / _MATMUL_SIZE), x)

    run = topology.shard(product, REPLICATED, REPLICATED)
    x = topology.replicate(jnp.ones((_MATMUL_SIZE, _MATMUL_SIZE)))
    run(x).block_until_ready()
    best = min(_timed(run, x)[1] for _ in range(8))
    return topology.axis.size * 4 * 2 * _MATMUL_SIZE**3 / best


def train(runtime: Runtime, empty: Interval, state: Any, iterations: int) -> Any:
    """Trains `iterations`, as many at once as the runtime can."""
    at_once = iterations if runtime.one_program else 1
    for _ in range(iterations // at_once):
        state, _, failed = runtime.advance(state, empty, at_once)
        jax.block_until_ready(failed)
    return state


def _windows(
    train: Callable[[Any, int], Any], state: Any, seconds: float, steps: int
) -> tuple[Any, list[float]]:
    """Steps per second of windows of equal work that take `seconds` in all, after a warm-up."""
    state, _ = _timed(train, state, 1)  # the first call takes longer than any other
    iterations = 1
    took = 0.0
    while took < seconds / WINDOWS / 4:
        state, took = _timed(train, state, iterations)
        rate = iterations / took
        iterations = 2 * iterations
    iterations = max(1, round(seconds / WINDOWS * rate))
    windows = []
    for _ in range(WINDOWS):
        state, took = _timed(train, state, iterations)
        windows.append(iterations * steps / took)
    return state, windows


def _loop_shares(
    train: Callable[[Any, int], Any], loop: Callable[[Writer, Any, int], Any], state: Any, count: int
) -> tuple[Any, list[float]]:
    """The time that a run's loop adds to `count` iterations, as a share of theirs, for several pairs."""
    added = []
    with tempfile.TemporaryDirectory() as folder:
        writers = JsonlWriter(f"{folder}/metrics.jsonl"), TensorBoardWriter(f"{folder}/tensorboard")
        with contextlib.closing(MultiWriter(writers)) as writer:
            looped = functools.partial(loop, writer)
            state = looped(state, count)  # opens the files
            for _ in range(_PAIRS):
                state, alone = _timed(train, state, count)
                state, in_loop = _timed(looped, state, count)
                added.append(in_loop / alone - 1)
    return state, added


def _run_loop(
    queue: DispatchQueue,
    config: Config,
    clock: Clock,
    meter: resources.Meter,
    writer: Writer,
    state: Any,
    count: int,
) -> Any:
    """Trains `count` iterations as a run does: with dispatches in flight, metrics read and written."""
    every = config.log_iterations

    def write(in_flight: int) -> None:
        for dispatch in queue.drain(in_flight):
            if dispatch.closes_row:
                row = reduction.row(dispatch.interval.metrics)
                writer.write(
                    dispatch.iteration * config.steps_per_iteration, row | clock.row() | meter.read()
                )

    at = int(state.iteration)
    end = at + count
    while at < end:
        target = queue.fits(at, min(end, (at // every + 1) * every))
        state, at = queue.dispatch(state, at, target, closes_row=target % every == 0)
        write(MAX_IN_FLIGHT - 1)
    write(0)
    return state


def _rollout_seconds(runtime: Runtime, state: Any, per_iteration: float) -> float:
    """Seconds of one rollout.

    If the device can make rollouts alone, they are timed. Otherwise it is the remainder of the
    `per_iteration` seconds of an iteration after its updates.
    """
    if not runtime.learning.per_device.config.collects:
        return 0.0
    iterations = max(1, round(0.5 / per_iteration))
    if (rollouts := runtime.rollouts(iterations)) is None:
        return max(0.0, per_iteration - _update_seconds(runtime, state))
    jax.block_until_ready(rollouts(state))
    return min(_timed(rollouts, state)[1] for _ in range(3)) / iterations


def _update_seconds(runtime: Runtime, state: Any) -> float:
    """Seconds of the updates of one iteration with nothing else running; the state is donated."""
    state, trajectory, totals = runtime.rollout(state)
    runtime.close()
    took = []
    for _ in range(4):
        (state, _), seconds = _timed(runtime.learning.update, state, trajectory, totals)
        took.append(seconds)
    return min(took[1:])  # the first one compiles


def _save_seconds(state: Any) -> float:
    """Seconds for which saving a checkpoint stalls training; writing continues in the background."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpointer(folder)
        stalls = []
        for step in range(4):
            stalls.append(_timed(checkpoints.save, step, state, {})[1])
            checkpoints.wait()
        checkpoints.close()
    return statistics.median(stalls[1:])  # the first one also starts threads


def _timed(job: Callable[..., Any], *given: Any) -> tuple[Any, float]:
    """The result of a job, and the seconds until all of it is there."""
    started = time.perf_counter()
    result = jax.block_until_ready(job(*given))
    return result, time.perf_counter() - started


def program_bytes(compiled: Any) -> int | None:
    """Arguments, results and temporaries of the training program on one device."""
    if (found := compiled.memory_analysis()) is None:
        return None
    arrays = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    return int(arrays + found.temp_size_in_bytes)
