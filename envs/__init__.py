"""Environments: contracts, suites, wrappers and batching. Never imports `jaxrl`."""

from envs.registry import make as make
from envs.registry import make_host as make_host
from envs.registry import register as register
