"""jaxrl record RUN --output=DIR: records episodes of a trained policy.

Writes DIR/NNNNNN.npz, an episode each, and last DIR/manifest.json with the
length, return and digest of each. A recurrent policy carries its memory
through an episode, and begins the next without any. jaxrl verify-data checks
the folder; jaxrl pretrain learns from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxrl.commands import command_line
from jaxrl.commands.arguments import (
    DEBUG,
    GREEDY,
    RUN,
    SAMPLE,
    WORKDIR,
    Argument,
    asked_sample,
    help_text,
    parse,
    run_folder,
)
from jaxrl.config import ConfigError
from jaxrl.runs import storage

EPISODES = Argument(
    "--episodes=N", "how many (default: {default})", int, 100, low=1, high=command_line.MOST_EPISODES
)
ARGUMENTS = (
    RUN,
    WORKDIR,
    Argument("--output=DIR", "a new folder, or an empty one", str, ""),
    EPISODES,
    Argument("--checkpoint=S", "which checkpoint: latest (default), best, or a step", str, "latest"),
    SAMPLE,
    GREEDY,
    Argument("--seed=K", "decides the episodes (default: 0)", int, 0, low=0, high=command_line.LARGEST_SEED),
    Argument("--minari", "also write DIR/data, a Minari data set (extra minari)", bool),
    Argument("--trust", "import the modules that the run's configuration names", bool),
    DEBUG,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Records what `argv` asks for; returns the exit code (0 written, 1 it failed, 2 bad input)."""
    return command_line.run_job(help_text(__doc__, ARGUMENTS), _job, argv)


def _job(argv: Sequence[str]) -> int:
    values, left = parse(ARGUMENTS, argv, positional=True)
    workdir = run_folder(values["workdir"], left)
    storage.require_run_folder("--workdir", workdir)
    if not values["output"]:
        raise ConfigError("`--output` is missing: name a new folder")
    named = ("output", "episodes", "seed", "checkpoint", "minari", "trust")
    asked = {name: values[name] for name in named}
    return write_recording(workdir=workdir, sample=asked_sample(values), **asked)


def write_recording(**asked: object) -> int:
    """Records, says what was written, and returns the exit code; see `jaxrl.evaluation.recordings`."""
    from jaxrl.evaluation.recordings import Recording

    recording = Recording(**asked)  # type: ignore[arg-type]
    command_line.require_writable_folder("output", recording.output)
    listed = recording.write(_tell)["episodes"].values()
    steps = sum(entry["length"] for entry in listed)
    mean = sum(entry["return"] for entry in listed) / len(listed)
    command_line.say(f"{len(listed)} episodes, {steps:,} steps, mean return {mean:.2f}: {recording.output}")
    command_line.say(f"to learn from them:  jaxrl pretrain --config=CONFIG --data={recording.output}")
    return 0


def _tell(done: int) -> None:
    if done % 100 == 0:
        print(f"{done} episodes", flush=True)
