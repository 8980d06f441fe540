"""PettingZoo and MPE2: the adapter against a loop over the bare package.

It needs them (`pip install -e '.[pettingzoo]'`) and is skipped without:

    python -m pytest -n 0 -m slow tests/envs/suites/test_pettingzoo_package.py
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.adapters import pettingzoo
from jaxrl.envs.host_env import HostOptions
from tests.envs.test_pettingzoo import play

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

N = 2


@pytest.fixture(autouse=True)
def package(monkeypatch):
    pytest.importorskip("pettingzoo")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.mark.parametrize(
    ("name", "module", "length"),
    [
        ("simple_spread_v3", "mpe2.simple_spread_v3", 54),
        ("mpe/simple_tag_v3(continuous_actions=True)", "mpe2.simple_tag_v3", 30),
        ("simple_speaker_listener_v4", "mpe2.simple_speaker_listener_v4", 30),
        ("knights_archers_zombies_v11", "pettingzoo.butterfly.knights_archers_zombies_v11", 300),
    ],
)
def test_adapter_does_what_the_bare_package_does(name, module, length):
    pytest.importorskip(module)
    factory = envs.make_host(f"pettingzoo:{name}")
    agents, space = factory.spec.agents, factory.spec.action_space
    rng = np.random.default_rng(0)
    kwargs = {"continuous_actions": True} if "continuous" in name else {}
    bare = [importlib.import_module(module).parallel_env(**kwargs) for _ in range(N)]
    counts = [getattr(bare[0].action_space(agent), "n", None) for agent in agents]
    shape = (length, N * len(agents))
    if counts[0] is None:
        actions = rng.uniform(0, 1, (*shape, *space.shape)).astype(np.float32)
    else:
        actions = rng.integers(0, np.tile(counts, N), shape)
    env = factory.start(HostOptions(seeds=(3, 4), num_groups=2, num_workers=2))
    try:
        got = play(env, actions)
    finally:
        env.close()
    ends = 0
    for n in range(N):
        obs, _ = bare[n].reset(seed=3 + n)
        acted, rewards, terminations, truncations = [], {}, {}, {}
        for t in range(length + 1):
            there = list(bare[n].agents)
            for i, agent in enumerate(agents):
                b = n * len(agents) + i
                assert got["first"][t, b] == (agent not in acted)
                if agent in acted or agent in there:
                    found, told = got["obs"][t, b], np.asarray(obs[agent], np.float32)
                    np.testing.assert_array_equal(found[tuple(map(slice, told.shape))], told)
                    assert found.size == told.size or not found[len(told) :].any()
                if agent in acted:
                    assert got["reward"][t, b] == np.float32(rewards[agent])
                    assert got["terminated"][t, b] == terminations[agent]
                    assert got["truncated"][t, b] == truncations[agent]
            if t == length:
                break
            ends += not there
            if there:
                told = {a: _action(actions[t, n * len(agents) + agents.index(a)]) for a in there}
                acted = there
                obs, rewards, terminations, truncations, _ = bare[n].step(told)
            else:
                acted = []
                obs, _ = bare[n].reset()
    assert ends, "no episode ended"


def _action(action):
    return action if action.ndim else int(action)


def test_names_and_what_is_turn_based():
    names = pettingzoo.names()
    assert {"simple_spread_v3", "pistonball_v6", "knights_archers_zombies_v11"} < set(names)
    assert "chess_v6" not in names
    with pytest.raises(ValueError, match="tictactoe_v3: is turn-based, with `env` .AEC. alone"):
        envs.make_host("pettingzoo:tictactoe_v3")
    with pytest.raises(ValueError, match="did you mean pettingzoo:simple_spread_v3"):
        envs.make_host("pettingzoo:simple_sprea_v3")
