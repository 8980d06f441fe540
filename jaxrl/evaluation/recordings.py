"""Folders of demonstrations from a trained policy, an environment's solver, or from actions at random."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl.config import ConfigError, check_same_spaces, environment_spec, versions
from jaxrl.config.errors import RunError, errors_as
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.host_env import HostEnvError
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.modes import mode_name
from jaxrl.experience.demonstrations import (
    Episode,
    foreign_files,
    read_dataset,
    record_episodes,
    write_dataset,
)
from jaxrl.experience.demonstrations.dataset import DatasetFault
from jaxrl.experience.demonstrations.episode import EpisodeFault
from jaxrl.experience.demonstrations.recording import AgentPlayer, Player, RandomPlayer, SolverPlayer
from jaxrl.experience.episodes import DEFAULT_MAX_EPISODE_STEPS
from jaxrl.parallel import tpu_slices
from jaxrl.runs.commits import commits, origin


@dataclass(frozen=True)
class _Cast:
    """The player and its environment."""

    env: str
    spec: EnvSpec
    player: Player
    mode: str = "random"
    wrappers: tuple[str, ...] = ()
    success: str = ""


@dataclass(frozen=True)
class Recording:
    """The episodes to record, and the folder for them.

    Attributes:
      output: a new or empty folder.
      seed: decides resets and choices.
      workdir: the run whose policy plays; "": actions at random, or of the solver.
      solver: the environment's solver plays.
      checkpoint: of it.
      sample: sample actions, or take greedy ones; None: as evaluations during training judged the policy.
      environment: the environment that is played; "": the run's.
      minari: also write `output`/data, a Minari data set.
    """

    output: str
    episodes: int
    seed: int = 0
    workdir: str = ""
    solver: bool = False
    checkpoint: str = "best"
    sample: bool | None = None
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
        cast = self._cast_of_run() if self.workdir else self._cast_without_run()
        facts = {
            "env": cast.env,
            "wrappers": list(cast.wrappers),
            "player": cast.player.name,
            "seed": self.seed,
            "mode": cast.mode,
        }

        def play() -> Iterator[Episode]:
            recorded = record_episodes(
                cast.env, cast.wrappers, cast.player, self.episodes, self.seed, cast.success
            )
            for number, episode in enumerate(recorded, 1):
                tell(number)
                yield episode

        return store(self.output, play(), cast.spec, facts, self.minari)

    def _cast_without_run(self) -> _Cast:
        spec = environment_spec("--env", self.environment, self.environment, ())
        _require_one_agent(spec)
        if self.solver and not spec.has_solver:
            raise ConfigError(f"`--player` (='solver'): {spec.name} has no solver")
        player = SolverPlayer() if self.solver else RandomPlayer(spec)
        return _Cast(env=self.environment, spec=spec, player=player, mode=player.name)

    def _cast_of_run(self) -> _Cast:
        trained = trained_policy.load(self.workdir, self.checkpoint, devices=1, trust=self.trust)
        draws = trained.draws(self.sample)
        config = trained.config
        env = self.environment or config.env.name
        if self.environment:
            check_same_spaces("--env", env, config.env)
        _require_one_agent(trained.spec)
        label = f"{trained.folder} step {trained.step}"
        return _Cast(
            env=env,
            spec=environment_spec("--env", env, env, config.env.wrappers),
            player=AgentPlayer(trained.agent, trained.state, label, draws),
            mode=mode_name(draws),
            wrappers=config.env.wrappers,
            success=config.env.success,
        )


def cut(manifest: Mapping[str, Any]) -> str:
    """A sentence on episodes without an end of their own; "" if there are none."""
    lengths = [entry["length"] for entry in manifest["episodes"].values()]
    count = lengths.count(DEFAULT_MAX_EPISODE_STEPS)
    return f"{count} of them were cut off after {DEFAULT_MAX_EPISODE_STEPS:,} steps" if count else ""


def _require_one_agent(spec: EnvSpec) -> None:
    if spec.agents:
        raise ConfigError(f"{spec.name} has several agents; episodes of one agent can be recorded")


def store(
    output: str, episodes: Iterable[Episode], spec: EnvSpec, facts: Mapping[str, Any], minari: bool
) -> dict[str, Any]:
    """Writes episodes into a new or empty folder; returns the manifest.

    Args:
      output: the folder.
      episodes: to write.
      spec: of their environment.
      facts: JSON values for the manifest, which also has the versions that made it.
      minari: also write `output`/data, a Minari data set.

    Raises:
      ConfigError: the folder is not empty.
      RunError: an environment failed, or the folder cannot be written.
    """
    made_with = {"versions": versions(), "commits": commits(), **origin()}
    try:
        manifest = write_dataset(Path(output), episodes, spec, {**facts, "made_with": made_with})
        if minari:
            _add_minari(Path(output), spec)
        return manifest
    except DatasetFault as error:
        raise ConfigError(f"`--output` (={output!r}): {error}") from error
    except OSError as error:
        raise RunError(f"{output}: {error}") from error
    except HostEnvError as error:
        raise RunError(str(error)) from error


def _add_minari(folder: Path, spec: EnvSpec) -> None:
    """Writes the episodes of a folder once more, as a Minari data set in its folder `data`."""
    episodes = read_dataset(str(folder), spec).episodes
    with errors_as(ConfigError, "`--minari`", EpisodeFault):
        foreign_files.write_minari(folder / "data", episodes, spec, folder.name)
