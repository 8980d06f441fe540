"""Questions about environments to a process of their own.

To make one may start jax's devices, which must not happen before they are chosen.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys

from jaxrl.config.errors import ConfigError

_ASK = "import sys; from jaxrl.config import {module}; sys.exit({module}.tell(sys.argv[1]))"


def ask(module: str, field: str, environment: str) -> str:
    """Returns the last line that `tell(environment)` prints, of a module of this package.

    Args:
      module: which has `tell`.
      field: the field that names the environment, for the error.
      environment: the only argument.

    Raises:
      ConfigError: it returns another code than 0; the message has its last line.
    """
    return _answer(module, field, environment, os.pathsep.join(p for p in sys.path if p))


# A configuration is checked more than once on its way to a run, and each question takes seconds. Errors are
# not kept: what is missing may be installed meanwhile.
@functools.cache
def _answer(module: str, field: str, environment: str, path: str) -> str:
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    command = [sys.executable, "-c", _ASK.format(module=module), environment]
    asked = subprocess.run(command, env=env, capture_output=True, text=True)
    lines = (asked.stdout if asked.returncode in (0, 2) else asked.stderr).strip().splitlines()
    if asked.returncode:
        raise ConfigError(f"`{field}` (={environment!r}): {lines[-1] if lines else 'cannot be made'}")
    return lines[-1]
