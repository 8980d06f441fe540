"""The precision of products while an algorithm learns."""

from __future__ import annotations

import contextlib
from typing import Any

from jaxrl.config import Config
from jaxrl.networks.kernels.products import precision_of_products


def learning_precision(config: Config) -> contextlib.AbstractContextManager[Any]:
    """A context for an update: its gradients have the precision that the network's own products have."""
    return precision_of_products(config.network.matmul_precision)
