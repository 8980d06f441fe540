"""Models in a registry, made of one small policy; and a server of them in a process of its own."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from jaxrl.inference import model_folder
from jaxrl.runs.registry import ModelRegistry, write_checksums
from tests.inference.runs import policy_of

ROOT = Path(__file__).parents[3]


def write_model(folder: Path, **fields: Any) -> Path:
    """A model of random parameters; its forms are checked as those of a run. A process makes each once."""
    made = _models()
    first = made / str(sorted(fields.items())).replace("/", " ")
    if not first.exists():
        first.mkdir()
        model_folder.write(policy_of(**fields), first, observations=40)
    return Path(shutil.copytree(first, folder))


@functools.cache
def _models() -> Path:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return Path(folder.name)


def altered(model: Path, folder: Path, **spaces: Any) -> Path:
    """The model with other arrays, of which numpy's runtime reads the change; and other spaces."""
    shutil.copytree(model, folder)
    arrays = load_file(folder / "policy.safetensors")
    changed = {name: np.flip(x, -1).copy() if "kernel" in name else x for name, x in arrays.items()}
    save_file(changed, folder / "policy.safetensors")
    for name in ("policy.onnx", "policy.stablehlo"):
        (folder / name).unlink()
    if spaces:
        found = json.loads((folder / "spaces.json").read_text())
        (folder / "spaces.json").write_text(json.dumps(found | spaces))
    write_checksums(folder)
    return folder


def registry_of(root: Path, *models: Path) -> ModelRegistry:
    """Versions 1, 2, ... of `walker`; production is the first."""
    registry = ModelRegistry(str(root), writable=True)
    for folder in models:
        registry.publish("walker", folder)
    registry.promote("walker", "production", 1)
    return registry


class ServerProcess:
    """`jaxrl serve` on a free port.

    Attributes:
      url, port: where it is, once `started`.
    """

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jaxrl", "serve", *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line from here on that matches; fails at the end of the output."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line)
            if match := re.search(pattern, line):
                return match
        raise AssertionError(f"{pattern!r} not in {self.said}: {self._process.communicate()[1]}")

    def start(self) -> ServerProcess:
        self.port = int(self.wait_for(r"on http://127\.0\.0\.1:(\d+)")[1])
        return self

    def signal(self, signum: int) -> None:
        self._process.send_signal(signum)

    def end(self, signum: int) -> tuple[int, str]:
        """Sends a signal; returns (exit code, what it wrote to stderr)."""
        self.signal(signum)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        out, err = self._process.communicate(timeout=30)
        self.said += out.splitlines(keepends=True)
        return self._process.returncode, err

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[ServerProcess]:
    server = ServerProcess(*arguments, **environment)
    try:
        yield server.start()
    finally:
        server.kill()


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Fails unless a condition comes to hold."""
    import time

    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
