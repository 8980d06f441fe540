"""The imports of a start, and when they are made."""

import subprocess
import sys

import pytest

_STARTS = """
import contextlib, io, sys
from jaxrl.commands import run
from jaxrl.commands.train import main

with contextlib.redirect_stdout(io.StringIO()):
    assert run(["jaxrl"]) in (0, 2)
    assert main(["jaxrl", "--help"]) == 0
    assert main(["jaxrl", "ppo", "--print-config"]) == 0
assert not {"jax", "flax", "gymnax", "optax", "orbax", "rich"} & set(sys.modules), "the command line"

import jaxrl.training.run
late = {"orbax.checkpoint", "tensorstore", "tensorboardX", "gymnax", "scipy.linalg", "google.cloud", "pandas"}
assert not late & set(sys.modules), "the import of a run"

jaxrl.training.run._import_late_packages(tensorboard=True)
assert {"orbax.checkpoint", "tensorboardX"} <= set(sys.modules)
assert not {"boto3", "google.cloud.storage", "google.auth"} & set(sys.modules), "clients of buckets"
"""


@pytest.mark.slow
def test_a_start_imports_no_more_than_it_needs() -> None:
    done = subprocess.run([sys.executable, "-c", _STARTS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
