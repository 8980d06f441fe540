"""A model that answers: where its files are, its runtime, chosen by time, and the carries of its sessions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import tempfile
from pathlib import Path

import numpy as np

from jaxrl.config.data_files import read_object
from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.local_files import is_remote
from jaxrl.config.text import one_line
from jaxrl.inference.serving import ServerOptions, runtimes
from jaxrl.inference.serving.arrays_of_spaces import ModelFacts, ObservationReader, action_writer
from jaxrl.inference.serving.runtimes import Named, RuntimeTiming
from jaxrl.runs import storage
from jaxrl.runs.registry import DEFAULT, LATEST, STAGES, ModelRegistry, damage

_SLOW_SECONDS = 5e-3  # a pass that takes longer runs in a thread


class ServedPolicy:
    """A model in use, with one row of carry for each of its sessions.

    Attributes:
      reader, write: of its observations and actions.
      timings: of the runtimes that were tried, the chosen one first.
      sizes: batch sizes that passes have; a batch is filled up with zeros to the next one. All give a row the
        same bits, so that an answer does not depend on who else asks.
      run: one pass; reads and writes no carry of a session.
      is_slow: True if a pass takes so long that it must not hold up others' requests.
    """

    def __init__(
        self, facts: ModelFacts, timings: tuple[RuntimeTiming, ...], reader: ObservationReader, slots: int
    ) -> None:
        self.facts = facts
        self.timings = timings
        self.reader = reader
        self.write = action_writer(facts.spaces["action"])
        self.sizes = tuple(sorted(timings[0].seconds))
        self.is_slow = max(timings[0].seconds.values()) > _SLOW_SECONDS
        self.run = timings[0].run
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

    def gather(self, obs: Named, slots: list[int], reset: list[bool], mask: np.ndarray | None) -> Named:
        """The arguments of a pass, filled up to the next size."""
        count = len(slots)
        size = next(n for n in self.sizes if n >= count)
        rows = np.array(slots + [self.nobody] * (size - count))
        given = {name: _fill(x, size) for name, x in obs.items()}
        given |= {name: x[rows] for name, x in self._carry.items()}
        given["reset"] = np.array(reset + [True] * (size - count))
        if mask is not None:
            given["action_mask"] = _fill(mask, size, fill=True)
        return given

    def scatter(self, after: Named, slots: list[int]) -> None:
        """Keeps the carries that a pass returned; if there are any, each row is a session's."""
        for name, x in self._carry.items():
            x[slots] = after[name][: len(slots)]


def _fill(x: np.ndarray, size: int, fill: bool = False) -> np.ndarray:
    """Rows up to `size`, of zeros or of True."""
    if len(x) == size:
        return x
    return np.concatenate([x, np.full((size - len(x), *x.shape[1:]), fill, x.dtype)])


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
            hint = did_you_mean(runtime, kinds)
            raise ConfigError(f"`--runtime` (={runtime!r}): {label} has no such form{hint}")
        load = functools.partial(runtimes.load, folder=folder, arrays=reader.arrays, carry=tuple(facts.carry))
        chosen = [runtime] if runtime else kinds
        timings = [runtimes.timed(kind, load(kind), facts, reader, largest) for kind in chosen]
        if not timings:
            raise ConfigError(f"{label} has no form that runs here: install onnxruntime, or jax")
        timings.sort(key=lambda timing: timing.cost)
        return ServedPolicy(facts, tuple(timings), reader, slots)
    except ConfigError:
        raise
    except Exception as error:  # of whichever library reads a file that is none of its kind
        raise ConfigError(f"{label} cannot be served: {one_line(repr(error))}") from error


@dataclasses.dataclass(frozen=True)
class RegistryTarget:
    """A model by its name, and a version of it by its number or stage."""

    registry: ModelRegistry
    name: str
    wanted: str

    @classmethod
    def parse(cls, text: str) -> RegistryTarget:
        """Reads `[REGISTRY:]NAME@VERSION`; raises ConfigError if the registry has no such model."""
        place, _, wanted = text.rpartition("@")
        url, _, name = place.rpartition(":")
        target = cls(ModelRegistry(url or DEFAULT, "MODEL"), name, wanted or LATEST)
        target.number()
        return target

    @property
    def moves(self) -> bool:
        """True if the version may become another one."""
        return self.wanted in STAGES

    def number(self) -> int:
        return self.registry.resolve(self.name, self.wanted)

    def read(self, number: int, options: ServerOptions) -> ServedPolicy:
        """A version, ready to act; raises ConfigError or RunError if it cannot be read."""
        with self.registry.fetch(self.name, number) as folder:
            label = f"{self.name} version {number}"
            return read(folder, label, options.runtime, options.largest_batch, options.sessions)


def is_named(given: str) -> bool:
    """True if `given` names a model of a registry."""
    return "@" in os.path.basename(given) and not os.path.isdir(given)


def read_folder(given: str, checkpoint: str, trust: bool, options: ServerOptions) -> ServedPolicy:
    """The policy of a model's folder or of a run, from which a model is made first.

    Raises:
      ConfigError: it is neither, or cannot be served.
      CheckpointError, RunError: the run has no such checkpoint, or it cannot be written.
    """
    chosen = (options.runtime, options.largest_batch, options.sessions)
    if not is_remote(given) and (Path(given) / "model.json").is_file():
        folder = Path(given).resolve()
        return read(folder, _label(folder.name, folder), *chosen)
    storage.require_run_folder("MODEL", given)
    if not is_remote(given) and not os.path.isdir(given):
        raise ConfigError(
            f"`MODEL` (={given!r}) is no folder; a model of a registry is NAME@VERSION or "
            "NAME@STAGE, such as NAME@latest"
        )
    from jaxrl.evaluation import trained_policy
    from jaxrl.inference import model_folder

    policy = trained_policy.load(given, checkpoint, devices=1, trust=trust)
    with tempfile.TemporaryDirectory(prefix="jaxrl-model-") as temporary:
        folder = Path(temporary)
        model_folder.write(policy, folder)
        return read(folder, _label(given.rstrip("/").rpartition("/")[2], folder), *chosen)


def _label(name: str, folder: Path) -> str:
    """The name by which clients know a model: no path of this machine."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return f"{name} step {int(read_object(folder / 'model.json')['provenance']['step'])}"
    return name
