"""jaxrl search CONFIG --space=FILE: searches values of fields, a run each.

  CONFIG                 a config file, or the name of a shipped one; or
                         --config=
  --space=FILE           which fields vary and how, YAML or JSON, such as
                         ppo.learning_rate: {log: [1e-5, 1e-2]}
                         (docs/search.md)
  --method=M             random (default) or grid; optuna (needs that extra);
                         pareto, by score and seconds (needs the search extra);
                         pbt: one population whose members exchange what they
                         have learnt; ray: Ray Tune (needs that extra)
  --trials=N             how many (default: 20; a grid ends with its points;
                         optuna and ray 50, pareto 100, the members of pbt 16)
  --sampler=S            of optuna: tpe (default), gp (needs torch) or cmaes
  --pruner=P             of optuna, which stops hopeless trials: median
                         (default), asha, hyperband or none
  --storage=S            of optuna: a journal file, or the URL of a database
                         such as sqlite:///study.db, for processes and hosts
                         that share one study (default: a journal in DIR)
  --scheduler=S          of ray: asha (default) stops hopeless trials, pbt lets
                         them take over what the best have learnt; none
  --searcher=S           of ray: random (default), bayesopt or hyperopt
  --address=A            of ray: a running cluster, HOST:PORT, ray://HOST:PORT
                         or auto (default: Ray is started on this machine)
  --cpus_per_trial=N     of ray: cores that each trial gets (default: 1)
  --gpus_per_trial=X     of ray: GPUs, or a part of one (default: 1 where the
                         cluster has any)
  --metric=KEY           what counts, of metrics.jsonl (default: eval/return)
  --score=S              its final value (default), or the mean of all, which
                         rewards learning early
  --direction=D          maximize (default) or minimize
  --jobs=N               trials at the same time (default: 1)
  --population=N         N trials as one program on all devices, where they
                         differ in numbers alone (default: 1)
  --verify=N             fresh seeds with which the winner is trained again
                         before it is called the best (default: 3; 0: none)
  --seed=K               decides the points that are tried (default: 0); what
                         trials train with is --config.seed
  --env=SUITE:NAME       the environment; as for jaxrl train
  --config.FIELD=VALUE   changes a field for all trials, such as
                         --config.stop.steps=100000
  --workdir=DIR          the folder of the search (default:
                         runs/CONFIG/search-METHOD); the same command continues
                         the search in it, also after a kill
  --debug                full tracebacks instead of one line for bad input

Every trial is a run folder, DIR/trials/NUMBER. DIR/best_config.py is the best
as a config file for jaxrl train, DIR/trials.jsonl lists all trials.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from jaxrl.commands import command_line
from jaxrl.config import ConfigError
from jaxrl.config.errors import did_you_mean
from jaxrl.parallel.signals import Interruption, caught_signals

_OF_OPTUNA, _OF_RAY = ("sampler", "pruner", "storage"), ("scheduler", "searcher", "address")
_TEXTS = ("method", "metric", "score", "direction", *_OF_OPTUNA, *_OF_RAY)
_COUNTS = ("trials", "jobs", "population", "verify", "seed", "cpus_per_trial")
_NUMBERS = ("gpus_per_trial",)
_OTHERS = ("space", "workdir", "debug", "config", "env", "help")
_MOST = 2**32 - 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the search that `argv` asks for; returns the exit code (2: bad input)."""
    with caught_signals() as interruption:
        return command_line.run_job(__doc__, lambda argv: _job(argv, interruption), argv)


def _job(argv: Sequence[str], interruption: Interruption) -> int:
    values = flags.FlagValues()
    for name in (*_TEXTS, "space", "workdir"):
        flags.DEFINE_string(name, None, "", flag_values=values)
    for name in _COUNTS:
        flags.DEFINE_integer(name, None, "", 0, _MOST, flag_values=values)
    for name in _NUMBERS:
        flags.DEFINE_float(name, None, "", 0, flag_values=values)
    flags.DEFINE_bool("debug", False, "", flag_values=values)
    rest = command_line.parse_flags(values, argv, known_only=True)
    _require_known(rest)
    file = values["space"].value
    if not file:
        raise ConfigError("`--space` is missing: name a file that says which fields vary (docs/search.md)")

    from jaxrl.experiments.search import SearchOptions, Space
    from jaxrl.experiments.search.optimization import search

    given: dict[str, Any] = {name: values[name].value for name in (*_TEXTS, *_COUNTS, *_NUMBERS)}
    given = {name: value for name, value in given.items() if value is not None}
    SearchOptions(**given)  # Before anything else is read: what it says is about the flags.
    space = Space.read(file)
    arguments = command_line.parse_training([argv[0], *rest])
    method = given.get("method", SearchOptions.method)
    name = os.path.dirname(arguments.workdir)  # runs/CONFIG
    workdir = values["workdir"].value or os.path.join(name, f"search-{method}")
    command_line.require_writable_folder("workdir", workdir)
    search(arguments.config, space, SearchOptions(**given, workdir=workdir), interruption)
    if interruption.signum is not None:
        print(f"{interruption.name}: the same command continues the search", file=sys.stderr)
    return interruption.exit_code


def _require_known(rest: Sequence[str]) -> None:
    """Raises ConfigError for a flag that is neither of a search nor of the configuration."""
    for argument in rest:
        flag = argument.partition("=")[0]
        name = flag.lstrip("-")
        if flag.startswith("-") and name not in ("config", "env") and not name.startswith("config."):
            known = (*_TEXTS, *_COUNTS, *_NUMBERS, *_OTHERS)
            raise ConfigError(f"unknown flag `{flag}`{did_you_mean(name, known, prefix='--')}")
