"""jaxrl train CONFIG: trains a policy, or resumes a run that was stopped.

SIGTERM, SIGINT and SIGHUP finish the iteration, save and exit with 128 +
signal; a second one ends at once. SIGUSR1 traces the next iterations, for
`jaxrl profile-summary` and TensorBoard.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Sequence

from jaxrl.commands import command_line, resumption, run_arguments
from jaxrl.commands.arguments import help_text
from jaxrl.commands.field_flags import ARGUMENTS
from jaxrl.config import ConfigError, check_config, text
from jaxrl.config.configuration import DEFAULT
from jaxrl.config.listing import config_file, field_list, json_file, section_list, yaml_file
from jaxrl.reporting.logs import log_level
from jaxrl.runs.signals import catch_signals

_PRINTED = {"--print-config": config_file, "--print-config=yaml": yaml_file, "--print-config=json": json_file}
_SWITCHES = ("--debug", *_PRINTED)
# Objects made between looks for garbage. With Python's own numbers, 700 or 2,000, imports and tracing take a
# tenth longer: they make hundreds of thousands of objects, and these stay.
_GARBAGE = (100_000, 50, 100)


def _help(argv: Sequence[str], part: str) -> int:
    """Prints the flags and the sections of the config that is named, or the fields of a part of it."""
    algorithm = run_arguments.named_algorithm(argv[1:])
    if part:
        command_line.show(field_list(algorithm or DEFAULT, "" if part == "all" else part))
    else:
        command_line.show(f"{help_text(__doc__, ARGUMENTS)}\n{section_list(algorithm)}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    started = time.perf_counter()
    gc.set_threshold(*_GARBAGE)
    given = list(sys.argv if argv is None else argv)
    debug = "--debug" in given
    asked = [x.partition("=")[2] for x in given if x in ("--help", "-h") or x.startswith("--help=")]
    if asked:
        return command_line.exit_code(lambda: _help(given, asked[-1]), debug)
    printed = next((form for flag, form in _PRINTED.items() if flag in given), None)
    rest = [argument for argument in given if argument not in _SWITCHES]

    def train() -> int:
        arguments = run_arguments.parse_training(rest)
        if printed is not None:
            arguments.announce()
            command_line.show(printed(check_config(arguments.config)))
            return 0
        # Imported after the command line has been checked: jax takes seconds to load.
        from jaxrl.runs import records

        records.require_no_runs(arguments.workdir)
        from jaxrl.population.run_population import run_population
        from jaxrl.training.device_count import limit_devices
        from jaxrl.training.run import Invocation, run

        config = arguments.config
        if config.get("hardware_profile") == "auto":
            from jaxrl.diagnostics import hardware_profile

            if arguments.processes.num_processes:
                raise ConfigError(
                    "`hardware_profile` (='auto') is for one process; it was started as several"
                )
            config = hardware_profile.fit(config, arguments.workdir, command_line.say)
        if arguments.most_devices:
            config.num_devices = limit_devices(config, arguments.most_devices, arguments.processes)
        start = run_population if check_config(config).population.seeds > 1 else run
        log_level.set(arguments.log_level)
        invocation = Invocation(debug, arguments.processes, started, arguments.notes)
        outcome = start(config, arguments.workdir, interruption, invocation)
        if outcome.is_first:
            lines = "\n".join(resumption.next_steps(outcome, rest))
            command_line.show(text.printable(lines, command_line.output_encoding()))
        return outcome.exit_code

    with catch_signals() as interruption:
        return command_line.exit_code(train, debug)
