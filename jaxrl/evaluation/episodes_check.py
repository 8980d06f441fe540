"""The check of a folder of demonstrations: its files, and some of its episodes simulated again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl.config import ConfigError, environment_spec
from jaxrl.config.environment import full_name
from jaxrl.config.errors import RunError, errors_as
from jaxrl.envs import registry, wrappers
from jaxrl.experience.demonstrations.dataset import (
    Dataset,
    DatasetFault,
    environment_of,
    has_manifest,
    is_dataset,
    is_simulated,
    read_dataset,
)
from jaxrl.experience.demonstrations.episode import EpisodeFault
from jaxrl.experience.demonstrations.simulation import Simulator
from jaxrl.parallel.tpu_slices import hush_libtpu


@dataclass(frozen=True)
class EpisodesCheck:
    """The facts of episodes that are as they were written.

    Attributes:
      simulated: how many episodes were simulated again.
      is_compared: True if there was a manifest to compare them with.
    """

    summary: Mapping[str, Any]
    simulated: int
    is_compared: bool


def check_episodes(folder: Path, given: str, simulate: int) -> EpisodesCheck | None:
    """Reads every episode of a folder; None if that holds something else, such as levels.

    Args:
      folder: a folder of episodes, or a file that is none.
      given: the environment; "": the one that the manifest names.
      simulate: how many episodes to simulate again, if they are of replays.

    Raises:
      ConfigError: no environment is named, or it cannot be made.
      RunError: the first fault, with its file.
    """
    if not (folder.is_file() or is_dataset(folder)):
        return None
    with errors_as(RunError, "", DatasetFault):
        named, found_wrappers = environment_of(folder) if folder.is_dir() else (given, ())
        name = full_name("--env", given)[0] if given else named
        if not name:
            raise ConfigError("`--env` is missing: no manifest names the environment")
        hush_libtpu()
        # Names from a file that may come from anyone: their modules are not imported.
        foreign = [x for x in found_wrappers if wrappers.module_of(x) is not None]
        if foreign or (not given and registry.module_of(name) is not None):
            named_module = foreign[0] if foreign else name
            raise ConfigError(f"{folder} names the module of {named_module!r}, which is not imported")
        spec = environment_spec("--env", name, name, found_wrappers)
        dataset = read_dataset(str(folder), spec, verify=True)
        simulated = _simulate_again(name, dataset, simulate) if is_simulated(folder) else 0
        return EpisodesCheck(dataset.summary(), simulated, has_manifest(folder))


def _simulate_again(env: str, dataset: Dataset, count: int) -> int:
    """Simulates some episodes again, evenly from all; returns how many."""
    simulator = Simulator(env)
    total = len(dataset.episodes)
    chosen = sorted({i * total // count for i in range(count)})
    for i in chosen:
        with errors_as(DatasetFault, f"{Path(dataset.folder) / dataset.files[i]}", EpisodeFault):
            simulator.verify(dataset.episodes[i])
    return len(chosen)
