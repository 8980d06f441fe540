"""jaxrl search CONFIG --space=FILE: searches values of fields, one run per trial.

Every trial is a run folder, DIR/trials/NUMBER. DIR/best_config.py is the best
as a config file for jaxrl train, DIR/trials.jsonl lists all trials.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from jaxrl.commands import command_line, run_arguments
from jaxrl.commands.arguments import SEED, Argument, CommandArguments, flag, require_no_flags
from jaxrl.commands.field_flags import FLAGS_OF_FIELDS, is_of_config
from jaxrl.config import ConfigError
from jaxrl.config.declarations import algorithm_of, declared_fields
from jaxrl.runs.signals import Interruption, catch_signals

_MOST = 2**32 - 1


class _Flags(CommandArguments):
    config = Argument("CONFIG", "a config file, or the name of a shipped one; or --config=")
    space: str | None = flag(
        "--space=FILE",
        "which fields vary and how, YAML or JSON, such as ppo.learning_rate: {log: [1e-5, 1e-2]} "
        "(docs/search.md)",
    )
    method: str | None = flag(
        "--method=M",
        "random (default) or grid; optuna (needs that extra); pareto, by score and seconds (needs the search "
        "extra); pbt: one population whose members copy parameters; ray: Ray Tune (needs that extra)",
    )
    trials: int | None = flag(
        "--trials=N",
        "how many (default: 20; a grid ends with its points; optuna and ray 50, pareto 100, the members "
        "of pbt 16)",
        within=(0, _MOST),
    )
    sampler: str | None = flag("--sampler=S", "of optuna: tpe (default), gp (needs torch) or cmaes")
    pruner: str | None = flag(
        "--pruner=P", "of optuna, which stops hopeless trials: median (default), asha, hyperband or none"
    )
    storage: str | None = flag(
        "--storage=S",
        "of optuna: a journal file, or the URL of a database such as sqlite:///study.db, for processes "
        "and hosts that share one study (default: a journal in DIR)",
    )
    scheduler: str | None = flag(
        "--scheduler=S",
        "of ray: asha (default) stops hopeless trials, pbt lets them take over what the best have learnt;"
        " none",
    )
    searcher: str | None = flag("--searcher=S", "of ray: random (default), bayesopt or hyperopt")
    address: str | None = flag(
        "--address=A",
        "of ray: a running cluster, HOST:PORT, ray://HOST:PORT or auto (default: Ray is started on this "
        "machine)",
    )
    cpus_per_trial: int | None = flag(
        "--cpus_per_trial=N", "of ray: cores that each trial gets (default: 1)", within=(0, _MOST)
    )
    gpus_per_trial: float | None = flag(
        "--gpus_per_trial=X",
        "of ray: GPUs, or a part of one (default: 1 if the cluster has any)",
        within=(0, None),
    )
    metric: str | None = flag("--metric=KEY", "what counts, of metrics.jsonl (default: eval/return)")
    score: str | None = flag(
        "--score=S", "its final value (default), or the mean of all, which rewards learning early"
    )
    direction: str | None = flag("--direction=D", "maximize (default) or minimize")
    jobs: int | None = flag(
        "--jobs=N", "trials at the same time, a process each (default: 1)", within=(0, _MOST)
    )
    population: int | None = flag(
        "--population=N",
        "N trials as one program on all devices, if they differ in numbers alone (default, without --jobs: "
        "all of a random search or grid, up to 32)",
        within=(0, _MOST),
    )
    trial_timeout: float | None = flag(
        "--trial_timeout=X",
        "seconds after which a trial is stopped and counts as failed; each is then a process",
        within=(0, None),
    )
    verify: int | None = flag(
        "--verify=N",
        "fresh seeds with which the winner is trained again before it is called the best (default: 3; 0: "
        "none)",
        within=(0, _MOST),
    )
    seed: int | None = replace(
        SEED,
        help="decides the points that are tried (default: 0); what trials train with is --config.seed",
        default=None,
    )
    env = Argument("--env=SUITE:NAME", "the environment; as for jaxrl train")
    config_field = Argument(
        "--config.FIELD=VALUE", "changes a field for all trials, such as --config.stop.steps=100000"
    )
    workdir: str | None = flag(
        "--workdir=DIR",
        "the folder of the search (default: runs/CONFIG/search-METHOD); the same command continues the "
        "search in it, also after a kill",
    )


@command_line.command(__doc__, _Flags, known_only=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    with catch_signals() as interruption:
        return _search(flags, left, interruption)


def _search(flags: _Flags, left: Sequence[str], interruption: Interruption) -> int:
    names = {x: x.partition("=")[0].lstrip("-") for x in left if x.startswith("-")}
    unknown = [x for x, name in names.items() if name not in ("config", "env") and not is_of_config(name)]
    known = ("config", "help", *(argument.name for argument in _Flags.arguments() if argument.word))
    require_no_flags(unknown, known, declared_fields(), FLAGS_OF_FIELDS)
    if not flags.space:
        raise ConfigError("`--space` is missing: name a file with the fields to vary (docs/search.md)")

    from jaxrl.search import SearchOptions, Space
    from jaxrl.search.optimization import search

    others = ("space", "workdir", "debug")
    given = {name: value for name, value in vars(flags).items() if value is not None and name not in others}
    SearchOptions(**given)  # Before anything else is read: its errors are about the flags.
    arguments = run_arguments.parse_training(["jaxrl", *left])
    space = Space.read(flags.space, algorithm_of(arguments.config))
    method = given.get("method", SearchOptions.method)
    name = os.path.dirname(arguments.workdir)  # runs/CONFIG
    workdir = flags.workdir or os.path.join(name, f"search-{method}")
    command_line.require_writable_folder("workdir", workdir)
    arguments.announce()
    search(arguments.config, space, SearchOptions(**given, workdir=workdir), interruption)
    if interruption.signum is not None:
        print(f"{interruption.name}: the same command continues the search", file=sys.stderr)
    return interruption.exit_code
