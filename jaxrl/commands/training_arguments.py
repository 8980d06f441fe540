"""The arguments of `jaxrl train`, which other commands take as well."""

from __future__ import annotations

from dataclasses import dataclass

from jaxrl.commands.arguments import Argument
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


_SHORT_FLAGS = (
    ShortFlag("--steps=N", "how long to train, in environment steps", field="stop.steps"),
    ShortFlag("--minutes=M", "how long at most", field="stop.seconds", scale=60),
    ShortFlag("--duration=H", "the same in hours", field="stop.seconds", scale=3600),
    ShortFlag("--num-envs=N", "environments over all devices", field="env.num_envs"),
    ShortFlag("--num-workers=N", "processes of environments on the host", field="host.num_workers"),
    ShortFlag("--num-envs-per-worker=N", "environments for each of them", field=ENVS_PER_WORKER),
    ShortFlag("--learning-rate=X", "or --lr=X", field=f"{LEARNER}.learning_rate"),
    ShortFlag("--lr=X", field=f"{LEARNER}.learning_rate"),
    ShortFlag("--seed=K", "decides all random numbers", field="seed"),
    ShortFlag(
        "--curriculum=FILE",
        "stages of tasks, or the name of shipped ones; alone the environment's",
        field="curriculum.file",
    ),
    ShortFlag("--stages=N", "only the first stages", field="curriculum.num_stages"),
    ShortFlag("--curriculum-start-level=N", "the stage to begin with", field="curriculum.start_stage"),
    ShortFlag("--task-list=LIST", "several environments for one policy", field="env.tasks"),
    ShortFlag("--resume-from=DIR", "continues that run in a new folder", field="resume_from"),
)
SHORT_FLAGS = {flag.name: flag for flag in _SHORT_FLAGS}
FLAGS_OF_FIELDS = {flag.field: flag.term for flag in reversed(_SHORT_FLAGS)}
OUTPUT_DIR = "output-dir"
LOG_LEVEL = "log-level"
MULTI_TASK = "multi-task"
ARGUMENTS = (
    Argument(
        "CONFIG", "a config file (.py, .yaml, .json), or the name of a shipped one, such as ppo; or --config="
    ),
    Argument("--config=CONFIG", kind=str),
    Argument(
        "--env=SUITE:NAME",
        "the environment; without CONFIG the shipped config that suits its spaces",
        str,
    ),
    Argument("--quick", "the short form of a CONFIG that has one, such as ppo_parallel", bool),
    *_SHORT_FLAGS,
    Argument(f"--{MULTI_TASK}", "goes with --task-list, which needs no other flag", bool),
    Argument(
        "--config.FIELD=VALUE",
        "changes a field, such as --config.ppo.learning_rate=1e-3; see below, with "
        "--config.algorithm=MODULE:CLASS also its fields",
    ),
    Argument(
        "--help=SECTION",
        "the fields of a section, such as ppo, or one field; --help=all lists every field",
    ),
    Argument("--workdir=DIR", "its folder (default: runs/CONFIG/DATE-TIME); an existing run resumes", str),
    Argument(f"--{OUTPUT_DIR}=DIR", kind=str),
    Argument(
        "--resume",
        "resumes the latest run of CONFIG; without CONFIG the latest of all, with the configuration that it "
        "has",
    ),
    Argument("--resume=DIR", "resumes the run in DIR; without CONFIG with the configuration that it has"),
    Argument(
        "--print-config",
        "prints the whole configuration as a config file, and ends; --print-config=yaml and "
        "--print-config=json in these forms",
    ),
    Argument(
        "--coordinator=HOST:PORT",
        "address of the first of several processes, with --num_processes=N and "
        "--process_id=I (docs/multihost.md; SLURM, Open MPI, Kubernetes and Cloud TPU "
        "provide all three)",
        str,
    ),
    Argument("--num_processes=N", kind=int, low=1, high=_LARGEST),
    Argument("--process_id=I", kind=int, low=0, high=_LARGEST),
    Argument(
        "--heartbeat=SECONDS",
        "until a process that is not heard of counts as lost (default: {default})",
        int,
        HEARTBEAT_SECONDS,
        1,
        _LARGEST,
    ),
    Argument(
        "--watchdog=SECONDS",
        "without progress until a process ends itself (default: 1800; 0: never)",
        int,
        None,
        0,
        _LARGEST,
    ),
    Argument(
        "--join=SECONDS",
        "to wait for the other processes at the start (default: {default})",
        int,
        JOIN_SECONDS,
        1,
        _LARGEST,
    ),
    Argument(f"--{LOG_LEVEL}=LEVEL", "of train.log: debug, info, warning or error (default: info)", str),
    Argument(
        "--debug",
        "full tracebacks instead of one line for what goes wrong, and the operation that made a NaN",
    ),
)
