"""PPO's ratios and values at the first minibatch, on an environment of each suite written in JAX.

Each needs its package (`pip install -e '.[suites]'`) and is skipped without it.
"""

from __future__ import annotations

import pytest

from tests.algorithms.extras import on_device, require_same
from tests.algorithms.tiny import tiny_config
from tests.envs.suites.test_suites import PACKAGES

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

# Their episodes end inside sequences of four steps.
NAMES = (
    "brax:reacher(episode_length=5, backend='spring')",
    "craftax:Craftax-Classic-Symbolic-v1(max_timesteps=6)",
    "gymnax:Breakout-MinAtar(max_steps_in_episode=7)",
    "jumanji:Maze-v0(time_limit=6)",
    "navix:Navix-Empty-5x5-v0(max_steps=5)",
    "pgx:connect_four",
    "playground:CartpoleSwingup(episode_length=5)",
    "popgym_arcade:CountRecallEasy(scale=4)",
    "xminigrid:MiniGrid-MemoryS8(max_steps=7)",
)


@pytest.mark.parametrize("name", NAMES)
def test_acting_and_learning_agree(name: str) -> None:
    suite = name.partition(":")[0]
    pytest.importorskip(PACKAGES.get(suite, suite))
    limits = ("time_limit(steps=6)",) if suite == "popgym_arcade" else ()
    require_same(*on_device(tiny_config("ppo", env__name=name, env__wrappers=limits, network__core="lstm")))
