"""Folders of demonstrations from a trained policy, or from actions at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl.config import ConfigError, environment_spec, versions
from jaxrl.config.errors import RunError
from jaxrl.envs.base import EnvSpec, HostEnvError
from jaxrl.evaluation import trained_policy
from jaxrl.experience.demonstrations import (
    Episode,
    minari_files,
    read_dataset,
    record_episodes,
    write_dataset,
)
from jaxrl.experience.demonstrations.dataset import DatasetFault
from jaxrl.experience.demonstrations.episode import EpisodeFault
from jaxrl.experience.demonstrations.recording import AgentPlayer, Player, RandomPlayer
from jaxrl.parallel import tpu_slices
from jaxrl.runs.commits import commits
from jaxrl.runs.origin import origin


@dataclass(frozen=True)
class Recording:
    """What is to be recorded, and where.

    Attributes:
      output: a new or empty folder.
      episodes: how many.
      seed: decides resets and choices.
      workdir: the run whose policy plays; "": actions at random.
      checkpoint: of it.
      sample: draw actions instead of taking the best ones.
      environment: what is played; "": the run's.
      trust: import the modules that the run's configuration names.
      minari: also write `output`/data, a Minari data set.
    """

    output: str
    episodes: int
    seed: int = 0
    workdir: str = ""
    checkpoint: str = "latest"
    sample: bool = False
    environment: str = ""
    trust: bool = False
    minari: bool = False

    def write(self, tell: Callable[[int], None]) -> dict[str, Any]:
        """Records, and returns the manifest.

        Args:
          tell: called with the number of episodes after each.

        Raises:
          ConfigError: there is no such run or environment, or the folder is not empty.
          RunError: an environment failed, or the folder cannot be written.
        """
        tpu_slices.hush_libtpu()
        wrappers: tuple[str, ...] = ()
        success = ""
        player: Player
        if self.workdir:
            trained = trained_policy.load(self.workdir, self.checkpoint, devices=1, trust=self.trust)
            config = trained.config
            if self.sample:
                trained.agent.require_samples()
            wrappers, success = config.env.wrappers, config.env.success
            name = self.environment or config.env.name
            spec = environment_spec("--env", name, name, wrappers)
            if (spec.observation_space, spec.action_space) != (
                trained.spec.observation_space,
                trained.spec.action_space,
            ):
                raise ConfigError(f"`--env` (={name!r}) has other spaces than the run's {config.env.name!r}")
            label = f"{trained.folder} step {trained.step}"
            player = AgentPlayer(trained.agent, trained.state, label, self.sample)
        else:
            name = self.environment
            spec = environment_spec("--env", name, name, ())
            player = RandomPlayer(spec)
        facts = {
            "env": name,
            "wrappers": list(wrappers),
            "player": player.name,
            "seed": self.seed,
            "mode": "sample" if self.sample else "greedy" if self.workdir else "random",
            "made_with": {"versions": versions(), "commits": commits(), **origin()},
        }

        def told() -> Iterator[Episode]:
            recorded = record_episodes(name, wrappers, player, self.episodes, self.seed, success)
            for number, episode in enumerate(recorded, 1):
                tell(number)
                yield episode

        try:
            manifest = write_dataset(Path(self.output), told(), spec, facts)
            if self.minari:
                _add_minari(Path(self.output), spec)
            return manifest
        except DatasetFault as error:
            raise ConfigError(f"`--output` (={self.output!r}): {error}") from error
        except (OSError, HostEnvError) as error:
            raise RunError(str(error)) from error


def _add_minari(folder: Path, spec: EnvSpec) -> None:
    """Writes the episodes of a folder once more, as a Minari data set in its folder `data`."""
    episodes = read_dataset(str(folder), spec).episodes
    try:
        minari_files.write_episodes(folder / "data", episodes, spec, folder.name)
    except EpisodeFault as error:
        raise ConfigError(f"`--minari`: {error}") from error
