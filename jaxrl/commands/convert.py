"""jaxrl convert --input=FILE --workdir=DIR: makes a run from a file of parameters.

Names and shapes must match the network, and all of its parameters must be
there. The new run has one checkpoint, to evaluate, export, or train further
with the same --workdir. The input stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxrl.commands import command_line, run_arguments
from jaxrl.commands.arguments import CONFIG_FIELD, ENV, Argument, CommandArguments, flag
from jaxrl.config import ConfigError, resolve


class _Flags(CommandArguments):
    input: str = flag(
        "--input=FILE", "parameters in .npz or .safetensors, named as jaxrl export names them", ""
    )
    config = Argument("CONFIG", "the config of the new run; or --config=CONFIG")
    env = ENV
    config_field = CONFIG_FIELD
    workdir: str = flag("--workdir=DIR", "folder of the new run", "")


@command_line.command(__doc__, _Flags, known_only=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    for name, given in (("input", flags.input), ("workdir", flags.workdir)):
        if not given:
            raise ConfigError(f"`--{name}` is missing: jaxrl convert --input=FILE --workdir=DIR")
    arguments = run_arguments.parse_training(["jaxrl", *left, f"--workdir={flags.workdir}"])

    from jaxrl.training import conversion

    taken = conversion.from_file(flags.input, resolve(arguments.config, 1), flags.workdir)
    arguments.announce()
    command_line.say(f"converted   {taken} arrays of {flags.input}")
    command_line.say(f"written to  {flags.workdir}/checkpoints/0")
    return 0
