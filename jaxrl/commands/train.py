"""Trains a policy: `python -m jaxrl.main --config=configs/ppo.py`.

Flags:
  --config=FILE                 what to train, see configs/
  --config.SECTION.FIELD=VALUE  changes one field, for example --config.ppo.learning_rate=1e-3
  --workdir=DIR                 folder of the run (default: runs/CONFIG/DATE-TIME); an existing run resumes
  --coordinator=HOST:PORT       of the first of several processes; with --num_processes=N and --process_id=I
                                (docs/multihost.md; SLURM, Open MPI, Kubernetes and Cloud TPU say all three)
  --heartbeat=SECONDS           until a process that is not heard of counts as lost (default: 60)
  --watchdog=SECONDS            without any progress until a process ends itself (default: 1800; 0: never)
  --join=SECONDS                to wait for the other processes at the start (default: 300)
  --debug                       full tracebacks instead of one line for what goes wrong, and the operation
                                that made a NaN

SIGTERM and SIGINT finish the iteration, save and exit with 128 + signal; a second one ends at once.
SIGUSR1 traces the next iterations, for jaxrl.profile_summary and TensorBoard.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from jaxrl.commands import command_line
from jaxrl.parallel.signals import caught_signals


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the training that `argv` asks for; returns the exit code (2: bad input)."""
    argv = list(sys.argv if argv is None else argv)
    if {"--help", "-h"} & set(argv):
        print(__doc__)
        return 0
    debug = "--debug" in argv
    argv = [argument for argument in argv if argument != "--debug"]

    def train() -> int:
        arguments = command_line.parse_training(argv)
        # Imported after the command line has been checked: jax takes seconds to load.
        from jaxrl.training.run import run

        return run(arguments.config, arguments.workdir, interruption, debug, arguments.processes)

    with caught_signals() as interruption:
        return command_line.exit_code(train, debug)
