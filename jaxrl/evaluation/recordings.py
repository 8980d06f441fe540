"""Folders of demonstrations: of a policy, a solver, random actions or simulated replays; and their check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxrl.config import ConfigError, check_same_spaces, environment_spec, versions
from jaxrl.config.environment import full_name
from jaxrl.config.errors import RunError, errors_as
from jaxrl.envs import registry, wrappers
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.host_env import HostEnvError
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.result import mode_name
from jaxrl.experience.demonstrations import (
    Episode,
    foreign_files,
    read_dataset,
    record_episodes,
    write_dataset,
)
from jaxrl.experience.demonstrations.dataset import (
    DatasetFault,
    environment_of,
    has_manifest,
    is_dataset,
    is_simulated,
)
from jaxrl.experience.demonstrations.episode import EpisodeFault
from jaxrl.experience.demonstrations.recording import AgentPlayer, Player, RandomPlayer, SolverPlayer
from jaxrl.experience.demonstrations.replays import ActionReplay, read_replays
from jaxrl.experience.demonstrations.simulation import Sifted, Simulator
from jaxrl.experience.episodes import DEFAULT_MAX_EPISODE_STEPS
from jaxrl.parallel import tpu_slices
from jaxrl.runs.commits import commits, origin


def record(
    output: str,
    episodes: int,
    tell: Callable[[int], None],
    seed: int = 0,
    workdir: str = "",
    solver: bool = False,
    checkpoint: str = "best",
    sample: bool | None = None,
    environment: str = "",
    trust: bool = False,
    minari: bool = False,
) -> dict[str, Any]:
    """Records episodes, and returns the manifest.

    Args:
      output: a new or empty folder.
      tell: called with the number of episodes after each.
      seed: decides resets and choices.
      workdir: the run whose policy plays; "": actions at random, or of the solver.
      solver: the environment's solver plays.
      checkpoint: of the run: "best", "latest" or a step.
      sample: sample actions, or take greedy ones; None: as evaluations during training judged the policy.
      environment: the environment that is played; "": the run's.
      minari: also write `output`/data, a Minari data set.

    Raises:
      ConfigError: there is no such run or environment, or the folder is not empty.
      RunError: an environment failed, or the folder cannot be written.
    """
    tpu_slices.hush_libtpu()
    player: Player
    success = ""
    used: tuple[str, ...] = ()
    if workdir:
        trained = trained_policy.load(workdir, checkpoint, devices=1, trust=trust)
        draws = trained.draws(sample)
        config = trained.config.env
        if environment:
            check_same_spaces("--env", environment, config)
        _require_one_agent(trained.spec)
        env, used, success = environment or config.name, config.wrappers, config.success
        spec = environment_spec("--env", env, env, used)
        label = f"{trained.folder} step {trained.step}"
        player = AgentPlayer(trained.agent, trained.state, label, draws)
        mode = mode_name(draws)
    else:
        env = environment
        spec = environment_spec("--env", env, env, ())
        _require_one_agent(spec)
        if solver and not spec.has_solver:
            raise ConfigError(f"`--player` (='solver'): {spec.name} has no solver")
        player = SolverPlayer() if solver else RandomPlayer(spec)
        mode = player.name

    def play() -> Iterator[Episode]:
        recorded = record_episodes(env, used, player, episodes, seed, success)
        for number, episode in enumerate(recorded, 1):
            tell(number)
            yield episode

    facts = {"env": env, "wrappers": list(used), "player": player.name, "seed": seed, "mode": mode}
    return store(output, play(), spec, facts, minari)


def _require_one_agent(spec: EnvSpec) -> None:
    if spec.agents:
        raise ConfigError(f"{spec.name} has several agents; episodes of one agent can be recorded")


def simulate(
    output: str,
    environment: str,
    tell: Callable[[int], None],
    replays: str = "",
    episodes: int | None = None,
    successful: bool = False,
    minari: bool = False,
) -> tuple[dict[str, Any], Sifted]:
    """Simulates replays and writes their episodes; returns the manifest, and the outcome of the replays.

    Args:
      output: a new or empty folder.
      environment: on the device.
      tell: called with the number of replays simulated after each.
      replays: a folder or a file; "": the solutions of the environment's levels.
      episodes: how many solutions; None: of all levels.
      successful: leave out episodes without success.
      minari: also write `output`/data, a Minari data set.

    Raises:
      ConfigError: no such environment, no replays, or more solutions than levels.
      RunError: none of the replays ends as recorded, or the folder cannot be written.
    """
    tpu_slices.hush_libtpu()
    environment_spec("--env", environment, environment, ())
    if registry.is_host(environment):
        raise ConfigError(f"`--env` (={environment!r}) runs on the host, which cannot be simulated")
    simulator = Simulator(environment)
    sifted = Sifted(successful)
    found = _read(replays, sifted) if replays else _solutions(simulator, environment, episodes)
    for number, replay in enumerate(found, 1):
        sifted.add(simulator, replay)
        tell(number)
    if not sifted.episodes:
        source, reason = next(iter(sifted.dropped.items()))
        raise RunError(f"no replay is left of {len(sifted.dropped)}; the first: {source}: {reason}")
    names = ("dropped", "duplicates", "categories", "versions")
    simulated = {"replays": replays, **{name: getattr(sifted, name) for name in names}}
    facts = {"env": environment, "wrappers": [], "simulated": simulated}
    return store(output, sifted.episodes, simulator.spec, facts, minari), sifted


def _read(replays: str, sifted: Sifted) -> Iterable[ActionReplay]:
    with errors_as(ConfigError, "`--replays`", DatasetFault):
        yield from read_replays(Path(replays).expanduser(), sifted.dropped.__setitem__)


def _solutions(simulator: Simulator, environment: str, episodes: int | None) -> Iterable[ActionReplay]:
    total = len(simulator.levels)
    count = total if episodes is None else episodes
    if count > total:
        raise ConfigError(
            f"`--episodes` (={count}) must be at most {total}, the number of levels: the solver plays "
            "each once; jaxrl prepare-data --levels=N makes more"
        )
    with errors_as(RunError, environment, EpisodeFault):
        return simulator.solutions(count)


def plays_levels(environment: str) -> bool:
    """True if the solver of an environment solves levels, whose solutions are simulated."""
    from jaxrl.envs.native.platformer.platformer import Platformer

    return not registry.is_host(environment) and isinstance(registry.make(environment), Platformer)


def cut(manifest: Mapping[str, Any]) -> str:
    """A sentence on episodes without an end of their own; "" if there are none."""
    lengths = [entry["length"] for entry in manifest["episodes"].values()]
    count = lengths.count(DEFAULT_MAX_EPISODE_STEPS)
    return f"{count} of them were cut off after {DEFAULT_MAX_EPISODE_STEPS:,} steps" if count else ""


def store(
    output: str, episodes: Iterable[Episode], spec: EnvSpec, facts: Mapping[str, Any], minari: bool
) -> dict[str, Any]:
    """Writes episodes into a new or empty folder; returns the manifest: `facts` and versions.

    Raises:
      ConfigError: the folder is not empty.
      RunError: an environment failed, or the folder cannot be written.
    """
    folder = Path(output)
    made_with = {"versions": versions(), "commits": commits(), **origin()}
    with (
        errors_as(ConfigError, f"`--output` (={output!r})", DatasetFault),
        errors_as(RunError, output, OSError),
        errors_as(RunError, "", HostEnvError),
    ):
        manifest = write_dataset(folder, episodes, spec, {**facts, "made_with": made_with})
        if minari:
            written = read_dataset(output, spec).episodes
            with errors_as(ConfigError, "`--minari`", EpisodeFault):
                foreign_files.write_minari(folder / "data", written, spec, folder.name)
        return manifest


def check_episodes(folder: Path, given: str, count: int) -> tuple[Mapping[str, Any], int, bool] | None:
    """Reads every episode of a folder; None if that holds something else, such as levels.

    Args:
      folder: a folder of episodes, or a file that is none.
      given: the environment; "": the one that the manifest names.
      count: how many episodes to simulate again, evenly from all, if they are of replays.

    Returns:
      (the summary of the data set, how many were simulated again, True if a manifest was compared).

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
        tpu_slices.hush_libtpu()
        # Names from a file that may come from anyone: their modules are not imported.
        foreign = [x for x in found_wrappers if wrappers.module_of(x) is not None]
        if foreign or (not given and registry.module_of(name) is not None):
            named_module = foreign[0] if foreign else name
            raise ConfigError(f"{folder} names the module of {named_module!r}, which is not imported")
        spec = environment_spec("--env", name, name, found_wrappers)
        dataset = read_dataset(str(folder), spec, verify=True)
        chosen: set[int] = set()
        if is_simulated(folder):
            simulator = Simulator(name)
            chosen = {i * len(dataset.episodes) // count for i in range(count)}
        for i in sorted(chosen):
            with errors_as(DatasetFault, f"{Path(dataset.folder) / dataset.files[i]}", EpisodeFault):
                simulator.verify(dataset.episodes[i])
        return dataset.summary(), len(chosen), has_manifest(folder)
