"""`population.seeds`: one run folder with a run for each seed in it, trained as one program."""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from jaxrl.config import Config, ConfigError, check_config, declared_fields, resolve, text
from jaxrl.config.construction import needs_trust
from jaxrl.config.environment import is_on_host
from jaxrl.config.errors import RunError
from jaxrl.config.sections import PopulationConfig
from jaxrl.parallel import cpu_devices
from jaxrl.parallel.compilation import use_compilation_cache
from jaxrl.parallel.processes import Processes
from jaxrl.parallel.sharding import Topology
from jaxrl.population.members import Conditions, Member, MemberEnding, train_members
from jaxrl.programs.device_runtime import describe_network
from jaxrl.reporting.writers import MultiWriter, require_packages
from jaxrl.reporting.writers.population import HIGHLIGHTS, PopulationRows
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.records import MEMBERS
from jaxrl.runs.signals import Interruption
from jaxrl.runs.storage.bucket import require_client
from jaxrl.training.run import Invocation, RunOutcome, run_writers
from jaxrl.training.start import with_stored_plan


def run_population(
    config: ConfigDict,
    workdir: str,
    interruption: Interruption,
    invocation: Invocation = Invocation(),  # noqa: B008
) -> RunOutcome:
    """Trains, or resumes, `population.seeds` members in `workdir`; arguments as for `training.run.run`.

    Raises:
      ConfigError: the configuration or the folder is wrong, or no population can be trained of it.
      RunError: every member failed.
    """
    processes = invocation.processes
    _require_trainable(config, processes)
    seeds = config.population.seeds
    cores = cpu_devices.available_cores()
    cpu_devices.offer_cpu_devices(min(seeds, config.num_devices or cores))
    resolved = resolve(config, 1)
    # All have one plan, and their newest checkpoints are hardly apart.
    resolved = with_stored_plan(resolved, _member_folder(workdir, resolved, interruption))
    # Each as a single run with its seed on one device.
    alone = dataclasses.replace(resolved, population=PopulationConfig(seeds=1), num_devices=0)
    members = []
    for seed in range(resolved.seed, resolved.seed + seeds):
        each = dataclasses.replace(alone, seed=declared_fields()["seed"].check(seed))
        members.append(Member(f"seed_{seed}", each, _member_folder(workdir, each, interruption)))
    require_packages(resolved.log.writers)
    require_client(resolved.storage.sync_to)
    use_compilation_cache()
    topology = Topology.of(min(seeds, config.num_devices or jax.local_device_count()))
    folder = RunFolder(workdir, resolved.checkpoint.keep, interruption)
    folder.create()
    with folder.lock():
        folder.require_same(resolved)
        folder.write_config(resolved)
        placed = dataclasses.replace(resolved, device_count=topology.axis.size)
        with run_writers(folder, placed, HIGHLIGHTS, describe_network(resolved)) as writer:
            for line in invocation.notes:
                writer.message(line)
            writer.message(f"run folder: {folder.path}, each seed in {MEMBERS}/")
            started = invocation.process_started
            conditions = Conditions(topology, interruption, invocation.debug, started, processes.watchdog)
            rows = PopulationRows(seeds, writer, Path(folder.log_folder, "metrics.jsonl"))
            endings = train_members(members, rows, conditions)
            return _conclude(folder, resolved, members, endings, writer, interruption)


def _require_trainable(config: ConfigDict, processes: Processes) -> None:
    checked = check_config(config)
    seeds = checked.population.seeds
    refused = {
        "one process trains a population": bool(processes.num_processes),
        f"`env.name` (={checked.env.name!r}) runs on the host": is_on_host(checked.env.name),
        "`resume_from` continues a single run": bool(checked.resume_from),
        "`shard_optimizer` (='on') divides single runs": getattr(checked.learner, "shard_optimizer", "")
        == "on",
        "`profile` traces single runs": bool(checked.profile.steps or checked.profile.host),
        "`hardware_profile` fits single runs": checked.hardware_profile != "none",
    }
    for reason, holds in refused.items():
        if holds:
            raise ConfigError(f"`population.seeds` (={seeds}): {reason}")


def _member_folder(workdir: str, config: Config, interruption: Interruption) -> RunFolder:
    return RunFolder(
        os.path.join(workdir, MEMBERS, f"seed_{config.seed}"), config.checkpoint.keep, interruption
    )


def _conclude(
    folder: RunFolder,
    config: Config,
    members: Sequence[Member],
    endings: Sequence[MemberEnding],
    writer: MultiWriter,
    interruption: Interruption,
) -> RunOutcome:
    """Writes the summary and returns the outcome of the population."""
    ended = {
        member.name: ending.summary
        for member, ending in zip(members, endings, strict=True)
        if ending.summary is not None
    }
    failed = {m.name: e.error for m, e in zip(members, endings, strict=True) if e.summary is None}
    if not ended:
        name, error = next(iter(failed.items()))
        raise RunError(f"all {len(failed)} members failed; {name}: {error}")
    reasons = {str(summary["stop_reason"]) for summary in ended.values()}
    interrupted = interruption.name in reasons
    resumable = interrupted or "wall_seconds" in reasons
    reason = str(interruption.name) if interrupted else " and ".join(sorted(reasons))
    summary: dict[str, Any] = {
        "stop_reason": reason,
        "steps": max(each["steps"] for each in ended.values()),
        "seconds": max(each["seconds"] for each in ended.values()),
    }
    best = None
    if not interrupted:
        summary |= _statistics(ended) | {"steps_per_second": pace(endings), "failed": failed}
        best = summary["best_member"]
        # As of a single run: if no member had a step left, their speed is that of before.
        if summary["steps_per_second"] or not folder.has_summary:
            folder.write_summary(summary)
    writer.finish(summary)
    for name, error in failed.items():
        writer.message(f"{name} failed: {error}")
    if best is not None:
        shown = text.number(summary["best_return"])
        writer.message(f"best: {best}, return {shown} at step {summary['best_step']:,}")
    return RunOutcome(
        exit_code=interruption.exit_code if interrupted else 0,
        folder=str(folder.path),
        resumable=resumable,
        needs_trust=needs_trust(config),
        has_tensorboard="tensorboard" in config.log.writers,
        is_first=True,
    )


def pace(endings: Sequence[MemberEnding]) -> int:
    """Steps per second of all members together, in the time of the one that trained longest.

    Not the sum of theirs: members that end earlier leave the devices to the others.
    """
    seconds = max(ending.seconds for ending in endings)
    return round(sum(ending.steps_made for ending in endings) / seconds) if seconds else 0


def _statistics(ended: dict[str, Any]) -> dict[str, Any]:
    """The entries of a population's summary.json beside how it ended: medians, the best, each member."""
    first = next(iter(ended.values()))
    returns = [each["eval_return"] for each in ended.values() if each["eval_return"] is not None]
    found = {name: each for name, each in ended.items() if each["best_return"] is not None}
    best = max(found, key=lambda name: found[name]["best_return"], default=None)
    shared = ("eval_episodes", "environment", "device", "peak_memory_bytes")
    kept = (
        "seed", "stop_reason", "steps", "eval_return", "eval_mode", "eval_returns", "best_return", "best_step"
    )  # fmt: skip
    modes = {each["eval_mode"] for each in ended.values()}
    return {
        "compile_seconds": max(each["compile_seconds"] for each in ended.values()),
        "eval_return": statistics.median(returns) if returns else None,
        "eval_return_std": statistics.stdev(returns) if len(returns) > 1 else None,
        "eval_mode": modes.pop() if len(modes) == 1 else None,  # None: members differ
        "best_member": best and f"{MEMBERS}/{best}",
        "best_return": found[best]["best_return"] if best else None,
        "best_step": found[best]["best_step"] if best else None,
        "members": {name: {key: each[key] for key in kept} for name, each in ended.items()},
        **{name: first[name] for name in (*shared, "versions", "commits", "host", "command")},
    }
