"""A check of the environments and networks that a space leads to, in a process of its own.

To make an environment may start jax's devices, which belong to the trials.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import ConfigError, check_config, to_json

_ASK = "import sys; from jaxrl.experiments.search import probe; sys.exit(probe.tell())"
# What decides the spaces and the network.
_SECTIONS = ("env", "network", "host", "evaluate", "normalize", "algorithm")


def require_trainable(configs: Sequence[ConfigDict]) -> None:
    """Raises ConfigError where one of the configurations names no environment or network that can be made.

    Those whose counts only fit together with other values of the space are left out.
    """
    asked: dict[str, dict[str, Any]] = {}
    for config in configs:
        try:
            data = to_json(check_config(config))
        except ConfigError:
            continue
        asked.setdefault(json.dumps({name: data[name] for name in _SECTIONS}), data)
    path = os.pathsep.join(p for p in sys.path if p)
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    text = json.dumps(list(asked.values()))
    done = subprocess.run([sys.executable, "-c", _ASK], env=env, input=text, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stdout if done.returncode == 2 else done.stderr).strip().splitlines()
        raise ConfigError(lines[-1] if lines else "the environment cannot be made")


def tell() -> int:
    """Checks the configurations on standard input; prints what is wrong and returns 2, else 0."""
    from jaxrl import networks
    from jaxrl.config import environment_spec, resolve

    for data in json.loads(sys.stdin.read()):
        fields = {name: value for name, value in data.items() if name not in ("derived", "device_count")}
        try:
            fields["network"]["recurrence"] = "auto"  # The trials' devices may have kernels that a CPU lacks.
            config = resolve(ConfigDict(fields), 1)
            c = config.env
            networks.build(config.network, environment_spec("env.name", c.name, c.name, c.wrappers))
        except ConfigError as error:
            print(" ".join(str(error).split()))
            return 2
    return 0
