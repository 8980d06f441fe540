"""The arguments of `jaxrl train`, which other commands take as well."""

from __future__ import annotations

from dataclasses import dataclass

from jaxrl.commands.arguments import Argument, CommandArguments, flag
from jaxrl.parallel.processes import HEARTBEAT_SECONDS, JOIN_SECONDS

_LARGEST = 1_000_000
LEARNER = "learner"
ENVS_PER_WORKER = "envs_per_worker"  # no field: environments are so many times the workers


@dataclass(frozen=True)
class ShortFlag(Argument):
    """A flag that sets one field.

    Attributes:
      field: its name; `LEARNER` stands for the section of the algorithm.
      scale: units of the field in one of the flag.
    """

    field: str = ""
    scale: float = 1


class TrainingFlags(CommandArguments):
    """The flags of `jaxrl train`; flags of fields are left to `field_flags`, `--resume` to `resumption`."""

    config_file = Argument(
        "CONFIG", "a config file (.py, .yaml, .json), or the name of a shipped one, such as ppo; or --config="
    )
    config: str | None = flag("--config=CONFIG")
    env: str | None = flag(
        "--env=SUITE:NAME", "the environment; without CONFIG the shipped config that suits its spaces"
    )
    quick: bool = flag("--quick", "the short form of a CONFIG that has one, such as ppo_parallel")
    steps = ShortFlag("--steps=N", "how long to train, in environment steps", field="stop.steps")
    minutes = ShortFlag("--minutes=M", "how long at most", field="stop.seconds", scale=60)
    duration = ShortFlag("--duration=H", "the same in hours", field="stop.seconds", scale=3600)
    num_envs = ShortFlag("--num-envs=N", "environments over all devices", field="env.num_envs")
    num_workers = ShortFlag(
        "--num-workers=N", "processes of environments on the host", field="host.num_workers"
    )
    num_envs_per_worker = ShortFlag(
        "--num-envs-per-worker=N", "environments for each of them", field=ENVS_PER_WORKER
    )
    learning_rate = ShortFlag("--learning-rate=X", "or --lr=X", field=f"{LEARNER}.learning_rate")
    lr = ShortFlag("--lr=X", field=f"{LEARNER}.learning_rate")
    seed = ShortFlag("--seed=K", "decides all random numbers", field="seed")
    curriculum = ShortFlag(
        "--curriculum=FILE",
        "stages of tasks, or the name of shipped ones; alone the environment's",
        field="curriculum.file",
    )
    stages = ShortFlag("--stages=N", "only the first stages", field="curriculum.num_stages")
    start_stage = ShortFlag(
        "--curriculum-start-level=N", "the stage to begin with", field="curriculum.start_stage"
    )
    task_list = ShortFlag("--task-list=LIST", "several environments for one policy", field="env.tasks")
    resume_from = ShortFlag("--resume-from=DIR", "continues that run in a new folder", field="resume_from")
    multi_task: bool = flag("--multi-task", "goes with --task-list, which needs no other flag")
    config_field = Argument(
        "--config.FIELD=VALUE",
        "changes a field, such as --config.ppo.learning_rate=1e-3; see below, with "
        "--config.algorithm=MODULE:CLASS also its fields",
    )
    section = Argument(
        "--help=SECTION", "the fields of a section, such as ppo, or one field; --help=all lists every field"
    )
    workdir: str | None = flag(
        "--workdir=DIR", "its folder (default: runs/CONFIG/DATE-TIME-PROCESS); an existing run resumes"
    )
    output_dir: str | None = flag("--output-dir=DIR")
    resume = Argument(
        "--resume",
        "resumes the latest run of CONFIG; without CONFIG the latest of all, with the configuration that it "
        "has",
    )
    resumed = Argument(
        "--resume=DIR", "resumes the run in DIR; without CONFIG with the configuration that it has"
    )
    print_config = Argument(
        "--print-config",
        "prints the whole configuration as a config file, and ends; --print-config=yaml and "
        "--print-config=json in these forms",
    )
    coordinator: str | None = flag(
        "--coordinator=HOST:PORT",
        "address of the first of several processes, with --num_processes=N and "
        "--process_id=I (docs/multihost.md; SLURM, Open MPI, Kubernetes and Cloud TPU "
        "provide all three)",
    )
    num_processes: int | None = flag("--num_processes=N", low=1, high=_LARGEST)
    process_id: int | None = flag("--process_id=I", low=0, high=_LARGEST)
    heartbeat: int = flag(
        "--heartbeat=SECONDS",
        "until a process that is not heard of counts as lost (default: {default})",
        HEARTBEAT_SECONDS,
        1,
        _LARGEST,
    )
    watchdog: int | None = flag(
        "--watchdog=SECONDS",
        "without progress until a process ends itself (default: 1800; 0: never)",
        None,
        0,
        _LARGEST,
    )
    join: int = flag(
        "--join=SECONDS",
        "to wait for the other processes at the start (default: {default})",
        JOIN_SECONDS,
        1,
        _LARGEST,
    )
    log_level: str = flag(
        "--log-level=LEVEL", "of train.log: debug, info, warning or error (default: {default})", "info"
    )
    debug = flag(
        "--debug",
        "full tracebacks instead of one line for what goes wrong, and the operation that made a NaN",
    )


ARGUMENTS = TrainingFlags.arguments()
_SHORT_FLAGS = [argument for argument in ARGUMENTS if isinstance(argument, ShortFlag)]
SHORT_FLAGS = {flag.name: flag for flag in _SHORT_FLAGS}
FLAGS_OF_FIELDS = {flag.field: flag.term for flag in reversed(_SHORT_FLAGS)}
