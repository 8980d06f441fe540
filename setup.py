"""What `pyproject.toml` cannot say: a wheel holds `envs` and `launch` in `jaxrl`.

A checkout, also an editable installation of it, keeps them where they are (docs/design/0015-distribution.md).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command import build_py

# setuptools tells its commands of an editable installation, but not this file.
EDITABLE = "editable_wheel" in sys.argv


class BuildPy(build_py.build_py):
    """Names `envs` as it is installed in what imports it."""

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, int]:
        """Copies a module into the wheel."""
        written, copied = super().build_module(module, module_file, package)
        if not EDITABLE:
            file = Path(written)
            renamed = re.sub(r"^(\s*(?:from|import)) envs\b", r"\1 jaxrl.envs", file.read_text(), flags=re.M)
            file.write_text(renamed)
        return written, copied


environments = find_packages(include=["envs", "envs.*"])
setup(
    packages=[
        *find_packages(include=["jaxrl", "jaxrl.*"]),
        *(environments if EDITABLE else (f"jaxrl.{name}" for name in (*environments, "launch"))),
    ],
    package_dir={} if EDITABLE else {"jaxrl.envs": "envs", "jaxrl.launch": "launch"},
    cmdclass={"build_py": BuildPy},
)
