"""`jaxrl COMMAND`, also as `python -m jaxrl COMMAND`."""

from __future__ import annotations

import sys

from jaxrl.commands import run

if __name__ == "__main__":
    sys.exit(run())
