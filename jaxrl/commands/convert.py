"""jaxrl convert --input=FILE --workdir=DIR: makes a run of a file or an old run.

  --input=FILE          parameters in .npz or .safetensors, named as jaxrl
                        export names them; or the folder of a run of an older
                        version
  CONFIG                with a file: the config of the new run; or
                        --config=CONFIG
  --env=SUITE:NAME      its environment; without CONFIG the shipped config that
                        suits it
  --config.FIELD=VALUE  changes a field (`jaxrl train --help` lists them)
  --workdir=DIR         folder of the new run
  --checkpoint=S        of an older run: latest (default) or a step
  --trust               import the modules that the config of an older run names
                        (module:Class): they can run any code
  --debug               full tracebacks instead of one line for bad input

Names and shapes must be those of the network, and all of its parameters must be
there. The new run has one checkpoint, to evaluate, export, or train on with the
same --workdir. The input stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from absl import flags

from jaxrl.commands import command_line
from jaxrl.config import ConfigError, resolve


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the conversion that `argv` asks for; returns the exit code (2: bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    values = flags.FlagValues()
    flags.DEFINE_string("input", None, "Where from.", flag_values=values)
    flags.DEFINE_string("workdir", None, "Folder of the new run.", flag_values=values)
    flags.DEFINE_string("checkpoint", "latest", "latest or a step.", flag_values=values)
    flags.DEFINE_bool("trust", False, "Import modules that the run names.", flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    left = command_line.parse_flags(values, argv, known_only=True)
    source, workdir = (str(values[name].value or "") for name in ("input", "workdir"))
    for name, given in (("input", source), ("workdir", workdir)):
        if not given:
            raise ConfigError(f"`--{name}` is missing: jaxrl convert --input=FILE --workdir=DIR")
    if os.path.isdir(source):
        if left:
            raise ConfigError(f"`{left[0]}`: the config of an older run comes from its own folder")
        command_line.require_writable_folder("workdir", workdir)

        from jaxrl.training import conversion

        trust = bool(values["trust"].value)
        made = conversion.from_run(source, str(values["checkpoint"].value), workdir, trust)
    else:
        config = command_line.parse_training([argv[0], *left, f"--workdir={workdir}"]).config

        from jaxrl.training import conversion

        made = conversion.from_file(source, resolve(config, 1), workdir)
    print(f"converted   {made.taken} arrays of {source}")
    for note in made.notes:
        print(f"            {note}")
    print(f"written to  {workdir}/checkpoints/{made.step}")
    return 0
