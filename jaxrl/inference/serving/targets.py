"""Targets of `jaxrl serve`: a run, a model's folder, or a name in a registry."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jaxrl.config.data_files import read_object
from jaxrl.config.errors import ConfigError
from jaxrl.config.local_files import is_remote
from jaxrl.inference.serving import served_policy
from jaxrl.inference.serving.served_policy import ServedPolicy
from jaxrl.inference.serving.server_options import ServerOptions
from jaxrl.runs import storage
from jaxrl.runs.registry import DEFAULT, LATEST, STAGES, ModelRegistry


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
            return served_policy.read(
                folder,
                f"{self.name} version {number}",
                options.runtime,
                options.largest_batch,
                options.sessions,
            )


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
        return served_policy.read(folder, _label(folder.name, folder), *chosen)
    storage.require_run_folder("MODEL", given)
    if not is_remote(given) and not os.path.isdir(given):
        raise ConfigError(
            f"`MODEL` (={given!r}) is no folder; a model of a registry is NAME@VERSION or "
            "NAME@STAGE, such as NAME@latest"
        )
    with _model_of_run(given, checkpoint, trust) as folder:
        return served_policy.read(folder, _label(given.rstrip("/").rpartition("/")[2], folder), *chosen)


def _label(name: str, folder: Path) -> str:
    """The name by which clients know a model: no path of this machine."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return f"{name} step {int(read_object(folder / 'model.json')['provenance']['step'])}"
    return name


@contextlib.contextmanager
def _model_of_run(run: str, checkpoint: str, trust: bool) -> Iterator[Path]:
    from jaxrl.evaluation import trained_policy
    from jaxrl.inference import model_folder

    policy = trained_policy.load(run, checkpoint, devices=1, trust=trust)
    with tempfile.TemporaryDirectory(prefix="jaxrl-model-") as temporary:
        model_folder.write(policy, Path(temporary), model_folder.ModelDetails())
        yield Path(temporary)
