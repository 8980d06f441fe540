"""jaxrl record RUN --output=DIR: records episodes of a trained policy or a solver.

Writes DIR/NNNNNN.npz, an episode each, and last DIR/manifest.json with the
length, return and digest of each. A recurrent policy carries its memory
through an episode, and begins the next without any. Without RUN, --env=NAME and
--player=solver record the environment's solver: of jaxrl:Platformer the
shortest solution of each level. jaxrl verify-data checks the folder; jaxrl
pretrain learns from it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from jaxrl.commands import command_line
from jaxrl.commands.arguments import (
    CHECKPOINT,
    GREEDY,
    MINARI,
    SAMPLE,
    SEED,
    TRUST,
    Argument,
    RunFlags,
    flag,
    sample_choice,
)
from jaxrl.config import ConfigError
from jaxrl.config.environment import full_name
from jaxrl.config.text import counted

DEFAULT_EPISODES = 100
_MOST_NAMED = 20  # replays, one a line
SOLVER = "solver"
PLAYER: Any = Argument(
    "--player=solver", "the environment's solver plays; of jaxrl:Platformer each level once", str
)


class _Flags(RunFlags):
    output: str = flag("--output=DIR", "a new folder, or an empty one", "")
    episodes: int | None = flag(
        "--episodes=N", "how many (default: 100)", within=(1, command_line.MOST_EPISODES)
    )
    env: str = flag("--env=NAME", "the environment, with --player", "")
    player: str | None = PLAYER
    checkpoint: str = CHECKPOINT
    sample: bool = SAMPLE
    greedy: bool = GREEDY
    seed: int = SEED
    minari: bool = MINARI
    trust: bool = TRUST


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    solved = flags.player or flags.env
    runs = [*left, *filter(None, [flags.workdir])]
    if solved and runs:
        raise ConfigError(f"`--player` and `--env` are for recordings without a run, which {runs[0]!r} is")
    if solved and not flags.env:
        raise ConfigError("`--env` is missing: name the environment whose solver plays")
    workdir = "" if solved else flags.folder(left)
    if not flags.output:
        raise ConfigError("`--output` is missing: name a new folder")
    if solved:
        return record_solver(flags.player, flags.env, flags.output, flags.episodes, flags.seed, flags.minari)
    return write_recording(
        workdir=workdir,
        output=flags.output,
        seed=flags.seed,
        checkpoint=flags.checkpoint,
        minari=flags.minari,
        trust=flags.trust,
        episodes=flags.episodes or DEFAULT_EPISODES,
        sample=sample_choice(flags.sample, flags.greedy),
    )


def record_solver(
    player: str | None, environment: str, output: str, episodes: int | None, seed: int, minari: bool
) -> int:
    """Records the solver of an environment, which `--player` must name; returns the exit code."""
    if player != SOLVER:
        raise ConfigError(f"`--player` (={player or ''!r}) must be {SOLVER}")
    name = full_name("--env", environment)[0]

    from jaxrl.config.level_datasets import with_all_parts
    from jaxrl.evaluation.recordings import plays_levels

    env = with_all_parts(name)
    if plays_levels(env):
        return write_simulated(output=output, environment=env, episodes=episodes, minari=minari)
    count = episodes or DEFAULT_EPISODES
    return write_recording(
        output=output, episodes=count, seed=seed, environment=env, solver=True, minari=minari
    )


def write_simulated(output: str, **asked: Any) -> int:
    """Simulates replays, prints the outcome; see `jaxrl.evaluation.recordings.simulate`."""
    from jaxrl.evaluation import recordings

    command_line.require_writable_folder("output", output)
    manifest, sifted = recordings.simulate(output, tell=_tell, **asked)
    for source, reason in list(sifted.dropped.items())[:_MOST_NAMED]:
        print(f"dropped {source}: {reason}")
    if len(sifted.dropped) > _MOST_NAMED:
        print(f"dropped {len(sifted.dropped) - _MOST_NAMED} more: see manifest.json")
    if sifted.duplicates:
        print(f"{len(sifted.duplicates)} duplicates left out")
    if sifted.categories:
        print(f"levels    {', '.join(f'{name} {count}' for name, count in sifted.categories.items())}")
    known = [e.success for e in sifted.episodes if e.success is not None]
    if known:
        print(f"success   {sum(known) / len(known):.1%}")
    lengths = [len(e) for e in sifted.episodes]
    print(f"length    {sum(lengths) / len(lengths):.2f}, from {min(lengths)} to {max(lengths)}")
    print(f"players   {', '.join(sorted({e.player for e in sifted.episodes if e.player})) or 'unknown'}")
    return _conclude(output, manifest)


def write_recording(output: str, **asked: Any) -> int:
    """Records, prints what was written; returns the exit code. See `jaxrl.evaluation.recordings.record`."""
    from jaxrl.evaluation import recordings

    command_line.require_writable_folder("output", output)
    return _conclude(output, recordings.record(output, tell=_tell, **asked))


def _conclude(output: str, manifest: dict[str, Any]) -> int:
    from jaxrl.evaluation import recordings

    listed = manifest["episodes"].values()
    steps = sum(entry["length"] for entry in listed)
    mean = sum(entry["return"] for entry in listed) / len(listed)
    if player := manifest.get("player"):
        command_line.say(f"played by {player}")
    made = f"{counted(len(listed), 'episode')}, {counted(steps, 'step')}"
    command_line.say(f"{made}, mean return {mean:.2f}: {output}")
    if cut := recordings.cut(manifest):
        command_line.say(cut)
    command_line.say(f"to learn from them:  jaxrl pretrain --config=CONFIG {shlex.quote(f'--data={output}')}")
    return 0


def _tell(done: int) -> None:
    if done % 100 == 0:
        print(f"{done} episodes", flush=True)
