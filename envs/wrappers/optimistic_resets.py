"""`optimistic_resets`: resets of a share of the environments at a time."""

from __future__ import annotations

import dataclasses

from jaxrl.envs.base import JaxEnv
from jaxrl.envs.names import check_positive
from jaxrl.envs.wrappers.wrapper import Wrapper


class OptimisticResets(Wrapper):
    """Says that a `VectorEnv` of B environments is to compute B / `ratio` resets at a time.

    Few episodes end in the same step, so most of B resets would be thrown away. Where more have ended than a
    round resets, further rounds follow: each environment starts with its own key in the state that it would
    start in without the wrapper, and never in another's (unlike Craftax's wrapper of this name, whose
    environments share a state then). About the length of an episode in steps is a good ratio. `ratio=1`
    computes all at once, which is faster where a reset is cheap.
    """

    for_agents = True

    def __init__(self, env: JaxEnv, ratio: int = 64):
        super().__init__(env)
        ratio = check_positive("wrapper optimistic_resets: ratio", ratio)
        self.spec = dataclasses.replace(env.spec, reset_ratio=ratio)
