"""The memory of a training program on its devices: it is compiled ahead of time, never run."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from ml_collections import ConfigDict

from jaxrl.config import Config, ConfigError, check_config, resolve
from jaxrl.config.environment import is_on_host
from jaxrl.diagnostics.compiled_programs import Work, read_work
from jaxrl.diagnostics.launches import Launches, read_launches
from jaxrl.evaluation.evaluator import EvaluationTask, build
from jaxrl.evaluation.result import modes_of
from jaxrl.parallel.compilation import without_cache
from jaxrl.parallel.sharding import Topology
from jaxrl.parallel.topologies import DescribedDevices
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.programs.jaxpr import LargeArray, largest_arrays, matmul_flops
from jaxrl.programs.memory import memory_of, replay_bytes
from jaxrl.training.device_count import choose_devices

# The search ends when a number that fits and one that does not are this close, relative to the first.
RESOLUTION = 1 / 16
# The limit of every search: beyond it, arrays have more elements than 32 bits can count.
MAX_ENVIRONMENTS_PER_DEVICE = 2**22
_MEMORY_ERROR = re.compile(r"\(?([\d.]+)([KMGT])\)? ?(?:of|exceeds)")


@dataclass(frozen=True)
class ProgramMemory:
    """Bytes of a compiled program on one device; `peak` is the most at one time."""

    peak: int
    arguments: int
    results: int
    temporaries: int
    code: int

    @classmethod
    def of(cls, compiled: Any, exact: bool) -> ProgramMemory:
        """Reads the compiler's analysis; donated arguments are counted as arguments only.

        With `exact` the peak is the compiler's, which knows which temporaries never live together. XLA for
        CPU leaves temporaries out of its peak; there everything is added up.
        """
        m = compiled.memory_analysis()
        results = max(0, m.output_size_in_bytes - m.alias_size_in_bytes)
        code = m.generated_code_size_in_bytes
        at_once = m.argument_size_in_bytes + results + m.temp_size_in_bytes
        peak = code + (m.peak_memory_in_bytes if exact else at_once)
        return cls(peak, m.argument_size_in_bytes, results, m.temp_size_in_bytes, code)


@dataclass(frozen=True)
class MemoryReport:
    """The compiler's report on one configuration and topology.

    Attributes:
      limit: bytes that programs may take on a device.
      enforced: True if the compiler refuses programs that need more, as for TPUs; else the peaks decide.
      needed: bytes that training needs; None if it does not fit and the compiler does not report them.
      memory, evaluation: of the two programs; None if the compiler gave up.
      work, launches: of an iteration; the launches on a GPU alone.
      flops: floating-point operations of matrix products, per iteration and device.
      seconds: to compile training and evaluation.
      largest: arrays of the training program.
      complaint: the compiler's error, if it gave up.
      replay: bytes of the steps that a replay memory keeps on each device; 0 without one.
    """

    config: Config
    limit: int
    enforced: bool
    needed: int | None
    memory: ProgramMemory | None
    evaluation: ProgramMemory | None
    work: Work | None
    launches: Launches | None
    flops: float
    seconds: tuple[float, float]
    largest: tuple[LargeArray, ...]
    complaint: str
    replay: int = 0

    @property
    def fits(self) -> bool:
        peaks = [memory.peak for memory in (self.memory, self.evaluation) if memory]
        return not self.complaint and (self.enforced or max(peaks) <= self.limit)


def examine(
    config: Config, topology: Topology, limit: int, enforced: bool, evaluation: bool = True
) -> MemoryReport:
    """Compiles training, and `evaluation`, for devices that may be only described; see `MemoryReport`."""
    runtime = DeviceRuntime(config, topology)
    traced = runtime.trace()
    platform = topology.axis.platform
    started = time.perf_counter()
    compiled, complaint = _compile(traced.lower().compile)
    trained = time.perf_counter() - started
    evaluated = None
    if evaluation and not complaint:
        task = EvaluationTask.of(config.env, runtime.spec)
        evaluator = build(config, task, runtime.agent, topology)
        policy = runtime.learning.abstract_state().learner.policy
        modes = modes_of(runtime.agent, config.evaluate.modes)
        _, complaint = _compile(lambda: evaluator.compile(policy, config.evaluate.episodes, modes))
        evaluated = evaluator.compiled[0] if evaluator.compiled else None
    memory = ProgramMemory.of(compiled, enforced) if compiled else None
    text = compiled.as_text() if compiled else ""
    return MemoryReport(
        config=config,
        limit=limit,
        enforced=enforced,
        needed=memory.peak if memory else _parse_needed(complaint),
        memory=memory,
        evaluation=ProgramMemory.of(evaluated, enforced) if evaluated else None,
        work=read_work(text) if text else None,
        launches=read_launches(text) if text and platform == "gpu" else None,
        flops=matmul_flops(traced.jaxpr, platform),
        seconds=(trained, time.perf_counter() - started - trained),
        largest=tuple(largest_arrays(traced.jaxpr, platform, 8)),
        complaint=complaint,
        replay=replay_bytes(runtime),
    )


def _compile(job: Callable[[], Any]) -> tuple[Any, str]:
    """(program, ""), or (None, the compiler's error about memory)."""
    try:
        # A program for devices that are only described cannot be read back from the cache.
        with without_cache():
            return job(), ""
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return None, str(error).splitlines()[0]


def _parse_needed(complaint: str) -> int | None:
    found = _MEMORY_ERROR.search(complaint)
    return int(float(found[1]) * 1024 ** (" KMGT".index(found[2]))) if found else None


def target(config: ConfigDict, described: DescribedDevices | None) -> tuple[Topology, int, str]:
    """The devices, the bytes that programs may take on each, and the name of the compiler."""
    if described is None:
        topology = Topology.of(choose_devices(config))
        return topology, memory_of(topology), f"; jax {jax.__version__}"
    jax.config.update("jax_platforms", "cpu")  # The devices of this machine do not matter.
    topology = Topology.on(described.devices())
    return topology, described.memory_bytes, f"; jax {jax.__version__}, {described.compiler}"


def share_evenly(config: ConfigDict, device_count: int) -> tuple[Config, int]:
    """The configuration for that many devices, with as many environments or the next number that divides.

    Returns:
      (config, unit): every number of environments must be a multiple of `unit`.

    Raises:
      ConfigError: the configuration is wrong.
    """
    checked = check_config(config)
    if is_on_host(config.env.name):
        raise ConfigError(f"`env.name` (={config.env.name!r}) runs on the host; preflight needs JAX code")
    if not checked.collects:
        rule = "steps no environments, whose number could be fitted into memory"
        raise ConfigError(f"`algorithm` (={checked.algorithm!r}) {rule}")
    unit = device_count * checked.learner.envs_multiple(checked.env.num_envs)
    changed = config.copy_and_resolve_references()
    changed.env.num_envs = -(-config.env.num_envs // unit) * unit
    return resolve(changed, device_count), unit


def with_environments(config: Config, count: int) -> Config:
    """The same configuration with another number of environments."""
    return dataclasses.replace(config, env=dataclasses.replace(config.env, num_envs=count))


def find_batch(
    first: MemoryReport, unit: int, try_one: Callable[[int], MemoryReport], most: int | None = None
) -> tuple[MemoryReport | None, int | None]:
    """Searches for the largest multiple of `unit` environments that fits, to within `RESOLUTION`.

    Begins with the report `first`; `try_one` compiles another number, of at most `most` (None: as 32 bits
    allow).

    Returns:
      (report of the largest that fits, the smallest number known not to fit); None if there is none.
    """
    start = first.config.env.num_envs
    best, fails = (first, None) if first.fits else (None, start)
    largest = MAX_ENVIRONMENTS_PER_DEVICE * first.config.device_count // unit * unit
    most = largest if most is None else min(most, largest)
    tried = {start: first}
    while True:
        low = best.config.env.num_envs if best else 0
        if low >= most or (fails is not None and fails - low <= max(unit, RESOLUTION * low)):
            return best, fails
        count = _next(tried, low, fails, unit, most)
        report = tried[count] = try_one(count)
        if report.fits:
            best = report
        else:
            fails = count


def _next(tried: dict[int, MemoryReport], low: int, fails: int | None, unit: int, most: int) -> int:
    """The number at which memory, extrapolated from what was tried, reaches the limit; else the middle."""
    known = sorted((n, r.needed) for n, r in tried.items() if r.needed)
    limit = next(iter(tried.values())).limit
    guess = 8.0 * (low or unit) if fails is None else (low + fails) / 2
    if len(known) > 1 and len(tried) < 5:
        (n0, m0), (n1, m1) = known[-2:]
        if m1 > m0:
            guess = n1 + (limit - m1) * (n1 - n0) / (m1 - m0)
    ceiling = most if fails is None else fails - unit
    # At least a hundredth beyond what is known to fit, or the estimates would creep towards the limit.
    floor = low + max(unit, math.ceil(low / 100 / unit) * unit)
    return min(max(int(guess) // unit * unit, min(floor, ceiling)), ceiling)
