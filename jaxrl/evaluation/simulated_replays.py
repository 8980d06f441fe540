"""Folders of demonstrations from replays, or from solutions of levels, that are simulated again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl.config import ConfigError, environment_spec
from jaxrl.config.errors import RunError, errors_as
from jaxrl.envs import registry
from jaxrl.evaluation.recordings import store
from jaxrl.experience.demonstrations.dataset import DatasetFault
from jaxrl.experience.demonstrations.episode import EpisodeFault
from jaxrl.experience.demonstrations.replays import read_replays
from jaxrl.experience.demonstrations.simulation import Sifted, Simulator
from jaxrl.parallel import tpu_slices


@dataclass(frozen=True)
class SimulatedReplays:
    """The replays to simulate, and the folder for their episodes.

    Attributes:
      output: a new or empty folder.
      environment: on the device.
      replays: a folder or a file; "": the solutions of the environment's levels.
      episodes: how many solutions; None: of all levels.
      successful: leave out episodes without success.
      minari: also write `output`/data, a Minari data set.
    """

    output: str
    environment: str
    replays: str = ""
    episodes: int | None = None
    successful: bool = False
    minari: bool = False

    def write(self, tell: Callable[[int], None]) -> tuple[dict[str, Any], Sifted]:
        """Simulates and writes; returns the manifest, and the outcome of the replays.

        Args:
          tell: called with the number of replays simulated after each.

        Raises:
          ConfigError: no such environment, no replays, or more solutions than levels.
          RunError: none of the replays ends as recorded, or the folder cannot be written.
        """
        tpu_slices.hush_libtpu()
        environment_spec("--env", self.environment, self.environment, ())
        if registry.is_host(self.environment):
            raise ConfigError(f"`--env` (={self.environment!r}) runs on the host, which cannot be simulated")
        simulator = Simulator(self.environment)
        sifted = Sifted(self.successful)
        for number, replay in enumerate(self._replays(simulator, sifted), 1):
            sifted.add(simulator, replay)
            tell(number)
        if not sifted.episodes:
            source, reason = next(iter(sifted.dropped.items()))
            raise RunError(f"no replay is left of {len(sifted.dropped)}; the first: {source}: {reason}")
        facts = {
            "env": self.environment,
            "wrappers": [],
            "simulated": {
                "replays": self.replays,
                "dropped": sifted.dropped,
                "duplicates": sifted.duplicates,
                "categories": sifted.categories,
                "versions": sifted.versions,
            },
        }
        return store(self.output, sifted.episodes, simulator.spec, facts, self.minari), sifted

    def _replays(self, simulator: Simulator, sifted: Sifted) -> Any:
        if self.replays:
            with errors_as(ConfigError, "`--replays`", DatasetFault):
                yield from read_replays(Path(self.replays).expanduser(), sifted.dropped.__setitem__)
            return
        total = len(simulator.levels)
        count = total if self.episodes is None else self.episodes
        if count > total:
            raise ConfigError(
                f"`--episodes` (={count}) must be at most {total}, the number of levels: the solver plays "
                "each once; jaxrl prepare-data --levels=N makes more"
            )
        with errors_as(RunError, self.environment, EpisodeFault):
            yield from simulator.solutions(count)


def plays_levels(environment: str) -> bool:
    """True if the solver of an environment solves levels, whose solutions are simulated."""
    from jaxrl.envs.native.platformer.platformer import Platformer

    return not registry.is_host(environment) and isinstance(registry.make(environment), Platformer)
