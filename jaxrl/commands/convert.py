"""jaxrl convert --input=FILE --workdir=DIR: makes a run from a file of parameters.

Names and shapes must match the network, and all of its parameters must be
there. The new run has one checkpoint, to evaluate, export, or train further
with the same --workdir. The input stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxrl.commands import command_line, run_arguments
from jaxrl.commands.arguments import CONFIG_FIELD, DEBUG, ENV, Argument, help_text, parse
from jaxrl.config import ConfigError, resolve

ARGUMENTS = (
    Argument(
        "--input=FILE",
        "parameters in .npz or .safetensors, named as jaxrl export names them",
        str,
    ),
    Argument("CONFIG", "the config of the new run; or --config=CONFIG"),
    ENV,
    CONFIG_FIELD,
    Argument("--workdir=DIR", "folder of the new run", str),
    DEBUG,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the conversion that `argv` asks for; returns the exit code (2: bad input)."""
    return command_line.run_job(help_text(__doc__, ARGUMENTS), _job, argv)


def _job(argv: Sequence[str]) -> int:
    values, left = parse(ARGUMENTS, argv, known_only=True)
    source, workdir = (str(values[name] or "") for name in ("input", "workdir"))
    for name, given in (("input", source), ("workdir", workdir)):
        if not given:
            raise ConfigError(f"`--{name}` is missing: jaxrl convert --input=FILE --workdir=DIR")
    arguments = run_arguments.parse_training([argv[0], *left, f"--workdir={workdir}"])

    from jaxrl.training import conversion

    made = conversion.from_file(source, resolve(arguments.config, 1), workdir)
    arguments.announce()
    command_line.say(f"converted   {made.taken} arrays of {source}")
    command_line.say(f"written to  {workdir}/checkpoints/{made.step}")
    return 0
