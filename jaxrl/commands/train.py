"""jaxrl train CONFIG: trains a policy, or resumes a run that was stopped.

  CONFIG                    a config file, or the name of a shipped one, such as
                            ppo; or --config=
  --env=SUITE:NAME          the environment; without CONFIG the shipped config
                            that suits its spaces
  --config.FIELD=VALUE      changes a field, such as
                            --config.ppo.learning_rate=1e-3; see below
  --workdir=DIR             its folder (default: runs/CONFIG/DATE-TIME); an
                            existing run resumes
  --resume                  resumes the latest run of CONFIG; without CONFIG the
                            latest of all, with the configuration that it has
  --resume=DIR              resumes the run in DIR; without CONFIG with the
                            configuration that it has
  --print-config            prints the whole configuration as a config file, and
                            ends
  --coordinator=HOST:PORT   of the first of several processes, with
                            --num_processes=N and --process_id=I
                            (docs/multihost.md; SLURM, Open MPI, Kubernetes and
                            Cloud TPU say all three)
  --heartbeat=SECONDS       until a process that is not heard of counts as lost
                            (default: 60)
  --watchdog=SECONDS        without progress until a process ends itself
                            (default: 1800; 0: never)
  --join=SECONDS            to wait for the other processes at the start
                            (default: 300)
  --debug                   full tracebacks instead of one line for what goes
                            wrong, and the operation that made a NaN

SIGTERM, SIGINT and SIGHUP finish the iteration, save and exit with 128 +
signal; a second one ends at once. SIGUSR1 traces the next iterations, for
`jaxrl profile-summary` and TensorBoard.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from jaxrl.commands import command_line, next_steps
from jaxrl.config import ConfigError, check_config
from jaxrl.config.listing import config_file, field_list
from jaxrl.metrics import text
from jaxrl.parallel.signals import caught_signals

_SWITCHES = ("--debug", "--print-config")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the training that `argv` asks for; returns the exit code (2: bad input)."""
    started = time.perf_counter()
    argv = list(sys.argv if argv is None else argv)
    if {"--help", "-h"} & set(argv):
        command_line.show(f"{__doc__}\n{field_list()}")
        return 0
    debug, print_config = (switch in argv for switch in _SWITCHES)
    argv = [argument for argument in argv if argument not in _SWITCHES]

    def train() -> int:
        arguments = command_line.parse_training(argv)
        if print_config:
            command_line.show(config_file(check_config(arguments.config)))
            return 0
        # Imported after the command line has been checked: jax takes seconds to load.
        from jaxrl.training.run import run

        config = arguments.config
        if config.get("hardware_profile") == "auto":
            from jaxrl.diagnostics import hardware_profile

            if arguments.processes.num_processes:
                raise ConfigError(
                    "`hardware_profile` (='auto') is for one process; it was started as several"
                )
            config = hardware_profile.fitted(config, arguments.workdir, lambda line: print(line, flush=True))
        outcome = run(config, arguments.workdir, interruption, debug, arguments.processes, started)
        if outcome.is_first:
            lines = "\n".join(next_steps.lines(outcome, argv))
            command_line.show(text.printable(lines, command_line.output_encoding()))
        return outcome.exit_code

    with caught_signals() as interruption:
        return command_line.exit_code(train, debug)
