"""Environments of other APIs, recognised by their classes without importing what these are of."""

from __future__ import annotations

import dataclasses
from typing import Any

_BATCH = (
    "is a VectorEnv, a batch of environments: name the class of a single one; jaxrl creates as many "
    "as `env.num_envs`"
)


@dataclasses.dataclass(frozen=True)
class Api:
    """An API of environments."""

    what: str  # its environments in words
    suite: str = ""  # of jaxrl, in which they are named; "" where they cannot be
    remedy: str = ""  # what to do instead, without a suite

    def advice(self, name: str) -> str:
        """The fault of `module:Class` and the name to write instead."""
        if not self.suite:
            return f"it {self.remedy}"
        return f"it is {self.what}: write {self.suite}:{name}"


# The first base that a class has decides; more specific ones come first.
_BASES = {
    "gymnasium.VectorEnv": Api("a VectorEnv", remedy=_BATCH),
    "stable_baselines3.VecEnv": Api("a VecEnv", remedy=_BATCH),
    "gymnasium.Env": Api("an environment of Gymnasium", "gymnasium"),
    "gym.Env": Api("one of gym", remedy="derives from gym's Env: derive it from gymnasium.Env"),
    "pettingzoo.ParallelEnv": Api("a parallel environment of PettingZoo", "pettingzoo"),
    "pettingzoo.AECEnv": Api("one by turns", remedy="is turn-based: only parallel environments train here"),
    "gymnax.Environment": Api("an environment of gymnax", "gymnax"),
}


def api_of(kind: type[Any]) -> Api | None:
    """The API of a class of environments; None if none is known."""
    bases = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in kind.__mro__}
    found = next((api for base, api in _BASES.items() if base in bases), None)
    if found is None and hasattr(kind, "reset_env") and hasattr(kind, "step_env"):
        return _BASES["gymnax.Environment"]
    return found
