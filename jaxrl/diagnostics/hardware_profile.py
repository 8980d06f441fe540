"""`hardware_profile=auto`: as many devices and environments as this machine holds, found by compiling."""

from __future__ import annotations

from collections.abc import Callable

from ml_collections import ConfigDict

from jaxrl.config import Config, ConfigError, text
from jaxrl.config.algorithm import AlgorithmConfig
from jaxrl.config.overrides import override
from jaxrl.diagnostics import memory_fit
from jaxrl.diagnostics.memory_fit import MemoryReport
from jaxrl.parallel.sharding import Topology
from jaxrl.runs.folder import RunFolder

# The share of a device's memory that is left free.
MARGIN = 0.1
# More environments make fewer and larger iterations of the same budget: fewer than this learn little.
MIN_ITERATIONS = 100
# The most parts of a minibatch: smaller ones leave the devices idle.
MAX_PARTS = 8


def fit(config: ConfigDict, workdir: str, say: Callable[[str], None]) -> ConfigDict:
    """Returns the configuration for this machine.

    A resumed run keeps the choice of its start.

    Raises:
      ConfigError: the environment runs on the host, or not even the smallest form fits.
    """
    topology, limit, _ = memory_fit.target(config, None)
    folder = RunFolder(workdir)
    if (folder.path / "config.json").exists():
        before = folder.read_config()
        say(f"hardware_profile=auto: as in {workdir}, {_describe(before, topology)}")
        return _with(config, before)
    chosen, reason = _search(config, topology, int((1 - MARGIN) * limit))
    allowed = f"{1 - MARGIN:.0%} of {text.size(limit)} on each device"
    say(f"hardware_profile=auto: {_describe(chosen, topology)}; {reason.format(memory=allowed)}")
    return _with(config, chosen)


def _search(config: ConfigDict, topology: Topology, limit: int) -> tuple[Config, str]:
    """The largest form of `config` that takes at most `limit` bytes of each device, and the reason.

    The reason has a place for `memory`.
    """

    def examine(given: ConfigDict) -> tuple[MemoryReport, int]:
        resolved, unit = memory_fit.share_evenly(given, topology.mesh.size)
        return memory_fit.examine(resolved, topology, limit, enforced=False), unit

    def try_one(count: int) -> MemoryReport:
        larger = memory_fit.with_environments(report.config, count)
        return memory_fit.examine(larger, topology, limit, enforced=False, evaluation=False)

    report, unit = examine(config)
    wanted = report.config.env.num_envs
    changed = config
    while not report.fits and (more := _divide_minibatches(config, report.config)) is not None:
        changed = more
        report, unit = examine(changed)
    if not report.fits:
        best, _ = memory_fit.find_batch(report, unit, try_one)
        if best is None:
            raise ConfigError(f"`hardware_profile` (='auto'): not even {unit} environments fit in memory")
        return best.config, f"{wanted:,} do not fit in {{memory}}"
    chosen = report.config
    if changed is not config:
        return chosen, "without more accumulation they do not fit in {memory}"
    most = chosen.stop.most_steps // (MIN_ITERATIONS * chosen.rollout_length) // unit * unit
    few = f"with more, stop.steps would be fewer than {MIN_ITERATIONS} iterations"
    if most <= wanted:
        return chosen, few
    best, fails = memory_fit.find_batch(report, unit, try_one, most)
    assert best is not None
    return best.config, f"the most that fit in {{memory}}, {fails:,} do not" if fails else few


def _divide_minibatches(given: ConfigDict, tried: Config) -> ConfigDict | None:
    """The same with minibatches in twice as many parts; None if they cannot be divided further."""
    field = tried.learner.accumulation_field
    parts = 2 * max(1, _parts(tried.learner))
    multiple = tried.learner.envs_multiple(tried.env.rows)
    if not field or parts > MAX_PARTS or tried.rows_per_device % (2 * multiple):
        return None
    changed = given.copy_and_resolve_references()
    override(changed, f"{tried.section}.{field}", str(parts))
    return changed


def _describe(config: Config, topology: Topology) -> str:
    parts = _parts(config.learner)
    divided = f", minibatches in {parts} parts" if parts > 1 else ""
    return f"{topology.description}, {config.env.num_envs:,} environments{divided}"


def _with(config: ConfigDict, chosen: Config) -> ConfigDict:
    changed = config.copy_and_resolve_references()
    changed.env.num_envs = chosen.env.num_envs
    changed.num_devices = chosen.device_count
    if field := chosen.learner.accumulation_field:
        override(changed, f"{chosen.section}.{field}", str(_parts(chosen.learner)))
    return changed


def _parts(learner: AlgorithmConfig) -> int:
    """The number of parts of a minibatch; 0 if the device decides, or if it cannot be chosen."""
    field = learner.accumulation_field
    return getattr(learner, field) if field else 0
