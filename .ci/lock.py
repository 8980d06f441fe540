"""Writes requirements.lock from pip's installation report: `python .ci/lock.py REPORT LOCK`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

HEADER = """\
# Versions that are known to work together, for `pip install -c requirements.lock -e '.[dev]'`.
# Constraints: what a platform does not need is not installed. Written by `make lock`; do not edit.
"""


def main(report: str, lock: str) -> None:
    installed = [item["metadata"] for item in json.loads(Path(report).read_text())["install"]]
    others = [package for package in installed if package["name"] != "jaxrl-recurrent"]
    pins = [f"{package['name']}=={package['version']}" for package in others]
    Path(lock).write_text(HEADER + "\n".join(sorted(pins, key=str.lower)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
