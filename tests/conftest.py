"""What every test runs under."""

import os

# Before jax is imported anywhere: results must not depend on the accelerator of the machine at hand.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
