"""What every test runs under."""

import os

# Before jax is imported anywhere: results must not depend on the accelerator of the machine at hand.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests compile far more than they compute: without LLVM's optimisations they take half the time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
