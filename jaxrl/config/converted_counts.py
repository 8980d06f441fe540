"""Counts that other trainers' files give as sizes: minibatches, accumulation, environments of each worker."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping

from ml_collections import ConfigDict

from jaxrl.config.declarations import algorithm_of, section_of
from jaxrl.config.overrides import assign

_INTERVALS = ("log.every_steps", "evaluate.every_steps", "checkpoint.every_steps")
_LEAST_INTERVAL = 1_000  # environment steps; smaller values of other trainers count rollouts or updates


@dataclasses.dataclass(frozen=True)
class Size:
    """A number of a file, and its key."""

    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.name} (={self.value})"


def convert(config: ConfigDict, sizes: Mapping[str, Size], said: Collection[str]) -> Iterator[str]:
    """Sets the counts that `sizes` come to, and yields a line on each.

    Args:
      config: with all other fields of the file.
      sizes: by word: `batch`, `minibatch` and `rollout` are environment steps, over all environments;
        `accumulation` is batches whose gradients are summed, `layers` are of the network,
        `target_interval` is steps between two target networks.
      said: the fields that the file sets itself.
    """
    if "envs_per_worker" in sizes:
        yield _environments(config, sizes["envs_per_worker"], said)
    groups = config.host.num_groups
    fitting = math.gcd(groups, config.host.num_workers, config.env.num_envs)
    if fitting != groups:
        assign(config, "host.num_groups", fitting)
        yield f"host.num_groups is {fitting}, which divides workers and environments"
    if "layers" in sizes:
        yield _layers(config, sizes["layers"])
    section = section_of(algorithm_of(config)).name
    fields = config[section]
    if "batch_size" in fields:
        yield from _batch(config, section, sizes)
    elif "num_minibatches" in fields:
        yield from _minibatches(config, section, sizes, said)
    else:
        words = ("batch", "minibatch", "rollout", "accumulation")
        if unread := [str(sizes[word]) for word in words if word in sizes]:
            yield f"left out: {', '.join(unread)}"
    steps = config.env.num_envs * fields.get("rollout_length", 1)
    for name in _INTERVALS:
        count = config[name.partition(".")[0]].every_steps
        # Intervals that are too small for environment steps count iterations.
        if name in said and 0 < count < _LEAST_INTERVAL:
            assign(config, name, count * steps)
            yield f"{name} is {count * steps}, since {count} is taken for iterations, of {steps:,} steps each"


def multiply_workers(config: ConfigDict, envs_per_worker: int) -> int:
    """Sets `env.num_envs` to so many for each of `host.num_workers`, at least one; returns the number."""
    count = max(1, config.host.num_workers) * envs_per_worker
    assign(config, "env.num_envs", count)
    return count


def _environments(config: ConfigDict, size: Size, said: Collection[str]) -> str:
    if "env.num_envs" in said:
        return f"left out: {size}, since the file sets the number of environments"
    count = multiply_workers(config, size.value)
    return f"{size} of {max(1, config.host.num_workers)} workers: {count} environments"


def _layers(config: ConfigDict, size: Size) -> str:
    """The layers of the core; without one, dense layers of equal width."""
    if config.network.core != "none":
        assign(config, "network.core_layers", size.value)
        return f"{size}: of the {config.network.core}"
    sizes = tuple(config.network.hidden_sizes)
    if len(sizes) == 1:
        assign(config, "network.hidden_sizes", sizes * size.value)
    return f"{size}: network.hidden_sizes is {tuple(config.network.hidden_sizes)}"


def _batch(config: ConfigDict, section: str, sizes: Mapping[str, Size]) -> Iterator[str]:
    """An algorithm with a memory has batches of a size; its target network goes by updates."""
    size = sizes.get("minibatch") or sizes.get("batch")
    accumulation = sizes.get("accumulation")
    fields = config[section]
    if size is not None:
        assign(config, f"{section}.batch_size", size.value * (accumulation.value if accumulation else 1))
        if accumulation:
            yield f"{size} times {accumulation}: {section}.batch_size is {fields.batch_size}"
    interval = sizes.get("target_interval")
    if interval is not None and "target_period" in fields:
        steps = fields.rollout_length * config.env.num_envs
        period = max(1, round(interval.value * fields.updates_per_rollout / steps))
        assign(config, f"{section}.target_period", period)
        yield f"{interval}: a new target network every {period} updates"


def _minibatches(
    config: ConfigDict, section: str, sizes: Mapping[str, Size], said: Collection[str]
) -> Iterator[str]:
    """A number of minibatches of a rollout, the nearest to the size that can be had."""
    fields = config[section]
    num_envs = config.env.num_envs
    size = sizes.get("minibatch") or sizes.get("batch")
    whole = sizes.get("rollout") or (sizes.get("batch") if "minibatch" in sizes else None)
    length_is_said = f"{section}.rollout_length" in said
    if whole is None and size is not None and size.value > num_envs * fields.rollout_length:
        # More than a rollout holds is the rollout itself.
        whole, size = (size, None) if not length_is_said else (None, size)
    if whole is not None and not length_is_said:
        assign(config, f"{section}.rollout_length", max(1, round(whole.value / num_envs)))
        yield f"{whole}: rollouts of {fields.rollout_length} steps in {num_envs} environments"
    accumulation = sizes.get("accumulation")
    times = accumulation.value if accumulation else 1
    steps = num_envs * fields.rollout_length
    given = f"{section}.num_minibatches" in said
    if given and size is None and not accumulation:
        return
    updates = fields.num_minibatches / (times if given else 1)
    wanted = max(1.0, steps / (size.value * times) if size else updates)
    units = fields.rollout_length // (fields.sequence_length or 1)
    products = {a * b for a in _divisors(num_envs) for b in _divisors(units)}
    possible = [n for n in products if units % (n // math.gcd(n, num_envs)) == 0]
    count = min(possible, key=lambda n: (abs(math.log(n / wanted)), n))
    changed = count != fields.num_minibatches
    assign(config, f"{section}.num_minibatches", count)
    line = f"{count} minibatch{'es' if count > 1 else ''} of {steps // count:,} steps"
    if accumulation:
        # At most so many parts of the environments of a minibatch, shared out to the devices first.
        envs = num_envs // math.gcd(count, num_envs)
        devices = sizes["devices"].value if "devices" in sizes else 1
        each = envs // devices if envs % devices == 0 else envs
        parts = max(n for n in _divisors(each) if n <= times)
        assign(config, f"{section}.gradient_accumulation", parts)
        line += f", each in {parts} parts" if parts > 1 else ""
        yield f"{f'{size} times ' if size else ''}{accumulation}: {line}"
    elif size:
        yield f"{size}: {line}"
    elif changed:
        yield f"{section}.num_minibatches is {count}, which divides the rollout"


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return [*small, *(number // n for n in small)]
