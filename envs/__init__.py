"""Environments as pure JAX functions: contracts, suites, wrappers and batching. Never imports `jaxrl`."""

from envs.registry import make as make
from envs.registry import register as register
