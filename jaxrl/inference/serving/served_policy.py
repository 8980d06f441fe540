"""A model that answers: its files checked, its runtime chosen by time, the carries of its sessions."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.config.data_files import read_object
from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.text import one_line
from jaxrl.inference.serving import arrays_of_spaces, runtimes
from jaxrl.inference.serving.arrays_of_spaces import ActionWriter, ObservationReader
from jaxrl.inference.serving.runtimes import Named, Run
from jaxrl.runs.registry import damage

_SIZES = (1, 2, 8, 32, 128, 512)
_CALLS = 15  # that are timed of each size, after one
_DRAWS, _WINDOWS = 8, 8  # comparisons of a size with the largest: samples, and parts of each
_SLOW_SECONDS = 5e-3  # a pass that takes longer runs in a thread
_LARGEST_CARRY = 2**24


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """The facts in a model's files.

    Attributes:
      label: how it is shown: `walker version 3`, or a path.
      spaces: content of spaces.json.
      carry: shape of each array of the carry, without batch, by name.
      carry_dtypes: their dtypes.
      mask_size: length of an action mask; None without masks.
      fixed_batch: the only batch size that its StableHLO takes, or None.
      record: content of model.json.
    """

    label: str
    spaces: Mapping[str, Any]
    carry: Mapping[str, tuple[int, ...]]
    carry_dtypes: Mapping[str, np.dtype[Any]]
    mask_size: int | None
    fixed_batch: int | None
    record: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path, label: str) -> ModelFacts:
        """Reads the files of a model; raises ValueError, KeyError, TypeError or OSError if they are none."""
        description = read_object(folder / "policy.json")
        record = read_object(folder / "model.json")
        spaces = read_object(folder / "spaces.json")
        carry = {}
        dtypes = {}
        for name, array in description["inputs"].items():
            if name.partition(".")[0] == "carry":
                shape = tuple(int(n) for n in array["shape"][1:])
                if any(n < 0 for n in shape) or np.prod(shape, dtype=np.float64) > _LARGEST_CARRY:
                    raise ValueError(f"no carry has the shape {shape}")
                carry[name], dtypes[name] = shape, np.dtype(array["dtype"])
                if dtypes[name].kind not in "biuf":
                    raise ValueError(f"no carry is of {dtypes[name]}")
        batch = str(record["forms"].get("stablehlo", {}).get("batch", "any size"))
        fixed = int(batch.split()[0]) if batch.split()[0].isdecimal() else None
        mask = spaces["action_mask"]
        for space in ("observation", "action"):
            arrays_of_spaces.schema(spaces[space])  # or raises
        if not isinstance(record.get("provenance"), dict):
            raise ValueError("model.json lacks its provenance")
        return cls(
            label=label,
            spaces=spaces,
            carry=carry,
            carry_dtypes=dtypes,
            mask_size=None if mask is None else int(mask),
            fixed_batch=fixed,
            record=record,
        )


@dataclasses.dataclass(frozen=True)
class RuntimeTiming:
    """A runtime's speed: seconds of a pass by batch size. All sizes give a row the same bits."""

    kind: str
    run: Run
    seconds: Mapping[int, float]

    @property
    def cost(self) -> float:
        """Seconds of a row that comes alone, and of one in a full batch, together."""
        smallest = min(self.seconds)
        largest = max(self.seconds)
        return self.seconds[smallest] + self.seconds[largest] / largest

    def __str__(self) -> str:
        shown = ", ".join(f"{1e3 * seconds:.3f} ms for {n}" for n, seconds in self.seconds.items())
        return f"{self.kind}: {shown}"


class ServedPolicy:
    """A model in use, with one row of carry for each of its sessions.

    Attributes:
      reader, writer: of its observations and actions.
      timings: of the runtimes that were tried, the chosen one first.
      sizes: batch sizes that passes have; a batch is filled up with zeros to the next one. All give a row the
        same bits, so that an answer does not depend on who else asks.
      is_slow: True if a pass takes so long that it must not hold up others' requests.
    """

    def __init__(
        self, facts: ModelFacts, timings: tuple[RuntimeTiming, ...], reader: ObservationReader, slots: int
    ) -> None:
        self.facts = facts
        self.timings = timings
        self.reader = reader
        self.writer = ActionWriter(facts.spaces["action"])
        self.sizes = tuple(sorted(timings[0].seconds))
        self.is_slow = max(timings[0].seconds.values()) > _SLOW_SECONDS
        self._run = timings[0].run
        # The last row is nobody's: rows that fill up a batch, and observations without a session.
        self.nobody = slots
        self._carry = {
            name: np.zeros((slots + 1, *shape), facts.carry_dtypes[name])
            for name, shape in facts.carry.items()
        }
        self._free = list(range(slots - 1, -1, -1))

    @property
    def remembers(self) -> bool:
        """True if actions depend on earlier observations."""
        return bool(self._carry)

    def take_slot(self) -> int | None:
        """A row for a new session; None if all are taken."""
        return self._free.pop() if self._free else None

    def give_slot(self, slot: int) -> None:
        """Clears a row, for another session."""
        for x in self._carry.values():
            x[slot] = 0
        self._free.append(slot)

    def gather(self, obs: Named, slots: np.ndarray, reset: np.ndarray, mask: np.ndarray | None) -> Named:
        """The arguments of a pass, filled up to the next size."""
        count = len(slots)
        size = next(n for n in self.sizes if n >= count)
        rows = np.full(size, self.nobody)
        rows[:count] = slots
        given = {name: _fill(x, size) for name, x in obs.items()}
        given |= {name: x[rows] for name, x in self._carry.items()}
        given["reset"] = _fill(reset, size, fill=True)
        if mask is not None:
            given["action_mask"] = _fill(mask, size, fill=True)
        return given

    def run(self, given: Named) -> tuple[np.ndarray, Named]:
        """One pass; reads and writes no carry of a session."""
        return self._run(given)

    def scatter(self, after: Named, slots: np.ndarray) -> None:
        """Keeps the carries that a pass returned."""
        kept = slots != self.nobody
        for name, x in self._carry.items():
            x[slots[kept]] = after[name][: len(slots)][kept]


def read(folder: Path, label: str, runtime: str, largest: int, slots: int) -> ServedPolicy:
    """Reads a model, times its runtimes and takes the fastest.

    Args:
      label: how it is shown.
      runtime: the only one to try; "" for all.
      largest: batch.
      slots: for how many sessions.

    Raises:
      ConfigError: the model is damaged, or none that can be served.
    """
    if problems := damage(folder):
        raise ConfigError(f"{label} is damaged: {problems[0]}")
    try:
        facts = ModelFacts.read(folder, label)
        reader = ObservationReader(facts.spaces["observation"])
        kinds = runtimes.available(folder, read_object(folder / "policy.json"))
        if runtime and runtime not in kinds:
            raise ConfigError(
                f"`--runtime` (={runtime!r}): {label} has no such form{did_you_mean(runtime, kinds)}"
            )
        load = functools.partial(runtimes.load, folder=folder, arrays=reader.arrays, carry=tuple(facts.carry))
        chosen = [runtime] if runtime else kinds
        timings = [_time(kind, load(kind), facts, reader, largest) for kind in chosen]
        if not timings:
            raise ConfigError(f"{label} has no form that runs here: install onnxruntime, or jax")
        timings.sort(key=lambda timing: timing.cost)
        return ServedPolicy(facts, tuple(timings), reader, slots)
    except ConfigError:
        raise
    except Exception as error:  # of whichever library reads a file that is none of its kind
        raise ConfigError(f"{label} cannot be served: {one_line(repr(error))}") from error


def _time(kind: str, run: Run, facts: ModelFacts, reader: ObservationReader, largest: int) -> RuntimeTiming:
    """Times the sizes at which each row has the bits that it has in the largest batch, at any place in it.

    Libraries multiply a matrix by one vector in another order than by several, for instance.
    """
    rng = np.random.default_rng(0)
    if kind == "stablehlo" and facts.fixed_batch:
        sizes = [facts.fixed_batch]
    else:
        sizes = [*(n for n in _SIZES if n < largest), largest]
    kept = set(sizes)
    for _ in range(_DRAWS):
        whole = _draw(facts, reader, sizes[-1], rng)
        reference = run(whole)
        order = rng.permutation(sizes[-1])
        if not _same(run({name: x[order] for name, x in whole.items()}), reference, order):
            kept = {
                sizes[0]
            }  # No batch gives a row the same bits everywhere: one row at a time, or that size.
            break
        for size in sizes[:-1]:
            for rows in np.array_split(order[: _WINDOWS * size], min(_WINDOWS, sizes[-1] // size)):
                window = rows[:size]
                if size in kept and not _same(
                    run({n: x[window] for n, x in whole.items()}), reference, window
                ):
                    kept.remove(size)
    seconds = {size: _seconds(run, {n: x[:size] for n, x in whole.items()}) for size in sorted(kept)}
    return RuntimeTiming(kind, run, seconds)


def _same(found: tuple[np.ndarray, Named], reference: tuple[np.ndarray, Named], rows: np.ndarray) -> bool:
    """True if `found` is the `rows` of `reference`, bit for bit."""
    action, carry = found
    pairs = [(action, reference[0]), *((x, reference[1][name]) for name, x in carry.items())]
    return all(np.array_equal(ours, theirs[rows]) for ours, theirs in pairs)


def _draw(facts: ModelFacts, reader: ObservationReader, size: int, rng: np.random.Generator) -> Named:
    given = reader.random_observations(size, rng)
    for name, shape in facts.carry.items():
        given[name] = rng.uniform(-1, 1, (size, *shape)).astype(facts.carry_dtypes[name])
    given["reset"] = rng.random(size) < 0.2
    if facts.mask_size is not None:
        given["action_mask"] = np.ones((size, facts.mask_size), bool)
    return given


def _seconds(run: Run, given: Named) -> float:
    """The median of `_CALLS` passes."""
    times = []
    for _ in range(_CALLS + 1):
        start = time.perf_counter()
        run(given)
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


def _fill(x: np.ndarray, size: int, fill: bool = False) -> np.ndarray:
    """Rows up to `size`, of zeros or of True."""
    if len(x) == size:
        return x
    return np.concatenate([x, np.full((size - len(x), *x.shape[1:]), fill, x.dtype)])
