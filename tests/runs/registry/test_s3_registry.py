"""The registry on S3: the real client against moto's server, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.registry.folders import model
from tests.runs.storage.s3_server import s3_server

ROOT = Path(__file__).parents[3]
URL = "s3://runs/models"
PUBLISH = f"""
import sys
from pathlib import Path
from jaxrl.runs.registry import ModelRegistry
registry = ModelRegistry({URL!r}, writable=True)
numbers = registry._numbers
print([registry.publish("walker", Path(folder)) for folder in sys.argv[1:3]])
# Another deployment takes the next number in between.
registry._numbers = lambda name: numbers(name)[:1]
print(registry.publish("walker", Path(sys.argv[2])))
with registry.fetch("walker", 2) as folder:
    print(sorted(file.name for file in folder.iterdir()))
"""


@pytest.mark.slow
def test_versions_and_stages_on_s3(tmp_path: Path) -> None:
    folders = [str(model(tmp_path / str(i), str(i), files=1)) for i in (1, 2)]
    with s3_server() as environment:

        def run(*arguments: str) -> str:
            command = [sys.executable, *arguments]
            done = subprocess.run(
                command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=60
            )
            assert (done.returncode, done.stderr) == (0, "")
            return done.stdout

        def models(*arguments: str) -> str:
            return run("-m", "jaxrl", "models", *arguments, f"--registry={URL}")

        files = "['arrays_0.bin', 'checksums.json', 'model.json']"
        assert run("-c", PUBLISH, *folders).splitlines() == ["[1, 2]", "3", files]
        assert models("promote", "walker@1", "production") == "production of walker is version 1\n"
        assert models("promote", "walker@3", "production") == "production of walker is version 3, was 1\n"
        assert models("list").split() == ["walker", "3", "versions", "production", "3"]
        assert models("rollback", "walker", "production") == "production of walker is version 1, was 3\n"
        assert models("verify").count("intact") == 3
