"""`python -m jaxrl.main`, which is `jaxrl train`."""

from __future__ import annotations

import sys

from jaxrl.commands.train import main

if __name__ == "__main__":
    sys.exit(main())
