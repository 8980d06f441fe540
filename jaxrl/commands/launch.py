"""jaxrl launch SCRIPT ARGUMENTS: trains with several processes, GPUs or TPUs.

  local_pod   N processes on this machine that connect like those of a cluster
  gpu_node    the GPUs of this machine, with restarts
  tpu_pod     a Cloud TPU slice, from the request to the deletion; sets it up
              from a checkout
  slurm       a SLURM job (calls sbatch)
  gke         prints a Kubernetes Job to fill in and apply

`jaxrl launch SCRIPT --help` says what a script takes. The processes use the
Python of this command, or that of $PYTHON.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from jaxrl.commands import command_line
from jaxrl.config import ConfigError
from jaxrl.config.errors import did_you_mean

_FILES = {
    "local_pod": "local_pod.sh",
    "gpu_node": "gpu_node.sh",
    "tpu_pod": "tpu_pod.sh",
    "slurm": "slurm.sbatch",
    "gke": "gke.yaml",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Becomes the script that `argv` names; returns only for help (0) and bad input (2)."""
    _, *arguments = sys.argv if argv is None else argv
    if not arguments or arguments[0] in ("--help", "-h"):
        command_line.show(str(__doc__))
        return 0
    return command_line.exit_code(lambda: _job(*arguments), debug=False)


def _job(name: str, *arguments: str) -> int:
    if name not in _FILES:
        raise ConfigError(f"`{name}` is no launch script{did_you_mean(name, _FILES)}")
    file = folder() / _FILES[name]
    if file.suffix == ".yaml" or (file.suffix == ".sbatch" and {"--help", "-h"} & set(arguments)):
        command_line.show(file.read_text().rstrip("\n"))
    else:
        program = "sbatch" if file.suffix == ".sbatch" else "bash"
        if (found := shutil.which(program)) is None:
            raise ConfigError(f"`{name}` needs the command {program}, which this machine lacks")
        print(end="", flush=True)
        os.execve(found, [program, str(file), *arguments], {"PYTHON": sys.executable} | os.environ)
    return 0


def folder() -> Path:
    """The folder of the scripts: in the package that a wheel installs, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    # In a checkout a link: the scripts find the checkout from where they really are.
    return (package / "launch").resolve()
