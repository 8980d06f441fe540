"""Parallel environments on the host: rows against a loop over the bare environment, and what is refused."""

from __future__ import annotations

import importlib.util

import jax
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs import env_check, filming, registry
from jaxrl.envs.base import Box, Discrete, InfoMetric
from jaxrl.envs.host.spaces import space_of
from jaxrl.envs.host_env import HostEnvError, HostOptions
from tests.envs.parallel_environments import Coming, Pushing

MODULE = "pettingzoo:tests.envs.parallel_environments"
AGENTS = Coming.possible_agents
FIELDS = ("reward", "terminated", "truncated", "first", "score", "game_over")


def play(env, actions_TB):
    """Every row [T + 1, B] of all groups: what the policy sees, masks, the answer's fields and the team's."""
    rows = []
    size = env.num_envs * env.spec.num_agents // env.num_groups
    for t in range(len(actions_TB) + 1):
        if t > 0:
            for g in range(env.num_groups):
                env.send(g, actions_TB[t - 1][g * size : (g + 1) * size])
        steps = [env.recv(g) for g in range(env.num_groups)]
        found = [
            {"obs": env.decode(s.obs), "mask": env.action_mask(s.obs)}
            | {name: getattr(s, name) for name in FIELDS}
            | {f"team_{name}": getattr(s.team, name) for name in (*FIELDS, "info")}
            for s in steps
        ]
        rows.append(jax.tree.map(lambda *x: np.concatenate(x), *found))
    return jax.tree.map(lambda *x: np.stack(x), *rows)


def loop(env, seed, actions_TA):
    """The same of one bare environment, by agent: a dict for each row, with those that took part or came."""
    obs, _ = env.reset(seed=seed)
    there, over = list(env.agents), False
    rows = [{"obs": obs, "came": there, "acted": [], "over": None}]
    for actions in actions_TA:
        if over:
            obs, _ = env.reset()
            there, over = list(env.agents), False
            rows.append({"obs": obs, "came": there, "acted": [], "over": None})
            continue
        told = {a: actions[AGENTS.index(a)] + (5 if a == "late" else 0) for a in there}
        obs, rewards, terminations, truncations, infos = env.step(told)
        ended = {a: terminations[a] or (a not in env.agents and not truncations[a]) for a in there}
        after = [a for a in env.agents if not (ended.get(a) or truncations.get(a))]
        over = not after
        rows.append(
            {
                "obs": obs,
                "came": [a for a in after if a not in there],
                "acted": there,
                "reward": rewards,
                "terminated": ended,
                "truncated": truncations,
                "hits": np.mean([infos[a]["hits"] for a in there]),
                "over": over,
            }
        )
        there = after
    return rows


@pytest.mark.parametrize(
    ("masks", "groups", "noise"), [pytest.param("info", 1, False, marks=pytest.mark.slow), ("obs", 2, True)]
)
def test_rows_are_those_of_the_bare_environment(start, masks, groups, noise):
    # Agents that die at different times, one that goes without a word, one that comes late and is cut off.
    name = f"{MODULE}:Coming(masks={masks!r}, noise={noise})"
    env = start(name, 2, num_groups=groups, num_workers=groups, info_keys=("hits",))
    spec = env.spec
    assert (spec.agents, spec.num_agents, spec.max_episode_steps) == (tuple(AGENTS), 4, None)
    assert (spec.observation_space, spec.action_space) == (Box.of(-1, 1, (9,)), Discrete(3))
    assert spec.reports == (InfoMetric("hits", "sum"),)
    actions = np.random.default_rng(0).integers(0, 2, (13, 8))
    got = play(env, actions)
    for n in range(2):
        rows = loop(Coming(masks=masks), n, actions[:, 4 * n : 4 * n + 4])
        for t, row in enumerate(rows):
            team = {key.removeprefix("team_"): x[t, n] for key, x in got.items() if key in TEAM}
            total = 0.0
            for i, agent in enumerate(AGENTS):
                b = 4 * n + i
                acted = agent in row["acted"]
                assert got["first"][t, b] == (not acted)
                total += row["reward"][agent] if acted else 0.0
                expected = np.float32(row["reward"][agent] if acted else 0.0)
                assert got["reward"][t, b] == got["score"][t, b] == expected
                assert got["terminated"][t, b] == (acted and row["terminated"][agent])
                assert got["truncated"][t, b] == (acted and row["truncated"][agent])
                if acted and agent not in row["obs"]:  # it has gone: its last row is not known
                    assert got["terminated"][t, b]
                    continue
                told = row["obs"][agent] if acted or agent in row["came"] else np.zeros(9)
                told = told["observation"] if isinstance(told, dict) else told
                np.testing.assert_array_equal(got["obs"][t, b], np.pad(told, (0, 9 - len(told))))
                there = (acted or agent in row["came"]) and agent != "late"
                assert got["mask"][t, b].tolist() == [True, True, not (there or agent == "late")]
            assert team["first"] == (row["over"] is None)
            np.testing.assert_allclose(team["score"], total, rtol=1e-6)
            # The last agent to leave is cut off beside one that terminates: the team is cut off.
            assert (team["truncated"], team["terminated"]) == (bool(row["over"]), False)
            assert team["game_over"] == bool(row["over"])
            if row["over"] is not None:
                assert got["team_info"]["hits"][t, n] == np.float32(row["hits"])


TEAM = {f"team_{name}" for name in FIELDS}


@pytest.mark.slow
def test_length_is_limited_and_first_episodes_are_cut_for_all_agents():
    factory = envs.make_host(f"{MODULE}:small_parallel_env")
    assert factory.spec.max_episode_steps == 3
    env = factory.start(HostOptions(seeds=(0, 1), first_episode_steps=(2, 3)))
    try:
        got = play(env, np.zeros((6, 4, 1)))
    finally:
        env.close()
    # Episodes end after 2 and 3 steps, then after 3; the row after an end begins the next.
    cut = np.array([[0, 0, 1, 0, 0, 0, 1], [0, 0, 0, 1, 0, 0, 0]], bool).T
    first = np.array([[1, 0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 1, 0, 0]], bool).T
    np.testing.assert_array_equal(got["truncated"], np.repeat(cut, 2, axis=1))
    np.testing.assert_array_equal(got["first"], np.repeat(first, 2, axis=1))
    np.testing.assert_array_equal(got["team_truncated"], cut)
    np.testing.assert_array_equal(got["team_first"], first)
    assert not got["terminated"].any()


def test_agents_that_stay_in_the_list_with_their_flags_have_not_come_back(start):
    got = play(start(f"{MODULE}:Staying(max_cycles=9)", 1), np.ones((8, 2, 1)))
    left, right = np.array([0, 1, 0, 0, 0, 1, 0, 0, 0], bool), np.array([0, 0, 0, 1, 0, 0, 0, 1, 0], bool)
    np.testing.assert_array_equal(got["terminated"], np.stack([left, right], axis=1))
    np.testing.assert_array_equal(got["first"][:, 0], [1, 0, 1, 1, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(got["team_terminated"][:, 0], right)
    # The place after each step of both, as the environment says, while an agent is there.
    np.testing.assert_array_equal(got["reward"][:5], -np.array([[0, 0], [2, 2], [0, 4], [0, 6], [0, 0]]))


@pytest.mark.slow
def test_wrappers_and_the_state_of_the_whole(start):
    name, rng = f"{MODULE}:Pushing", np.random.default_rng(1)
    names = ("agent_id", "reward_scale(factor=0.5)", "central_observation")
    factory = envs.make_host(name, names)
    env = factory.start(HostOptions(seeds=(0, 1), num_groups=2))
    actions = rng.uniform(-1, 1, (9, 4, 1)).astype(np.float32)
    try:
        got = play(env, actions)
    finally:
        env.close()
    assert factory.spec.observation_space == dict_space(factory)
    for n in range(2):
        bare = Pushing()
        bare.reset()
        for t in range(10):
            begins = t % 4 == 0
            if begins:
                bare.reset()
            else:
                rewards = bare.step(
                    dict(zip(("left", "right"), actions[t - 1, 2 * n : 2 * n + 2], strict=True))
                )[1]
            for i, agent in enumerate(("left", "right")):
                b = 2 * n + i
                own = [*bare._told()[agent], float(i == 0), float(i == 1)]
                np.testing.assert_allclose(got["obs"]["own"][t, b], own, rtol=1e-6)
                np.testing.assert_allclose(got["obs"]["central"][t, b], bare.state(), rtol=1e-6)
                expected = 0.0 if begins else rewards[agent] / 2
                np.testing.assert_allclose(got["reward"][t, b], expected, rtol=1e-5)
            if not begins:
                np.testing.assert_allclose(got["team_score"][t, n], sum(rewards.values()), rtol=1e-5)


def dict_space(factory):
    central = space_of(factory.unwrapped.state_leaf)
    own = Box.of((-np.inf, -np.inf, 0, 0), (np.inf, np.inf, 1, 1), (4,))
    return type(factory.spec.observation_space)((("central", central), ("own", own)))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (f"{MODULE}:Turns", "is turn-based (AEC), with `agent_iter`: only parallel environments train here"),
        (f"{MODULE}:Nobody", "has no possible_agents"),
        (f"{MODULE}:anything", "or a function whose name ends in parallel_env; anything of"),
        (f"{MODULE}:Pushing(fault='kinds')", "left has Discrete(2) and right float32[1] in [-1, 1]"),
        (f"{MODULE}:Pushing(fault='shapes')", "observe vectors, or all the same; here left has uint8[2, 2]"),
        (f"{MODULE}:Pushing(wrong=1)", "making it raised TypeError"),
        (f"{MODULE}:Pushing(fault='no infos')", "reset() returned NoneType as infos: a dict by agent is"),
        ("pettingzoo:no_such_module:Thing", "No module named 'no_such_module'"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(name, problem):
    with pytest.raises(ValueError, match="^pettingzoo:") as caught:
        envs.make_host(name)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("list", "environment 0, step 7: changes its possible_agents: ('left', 'right'), now"),
        ("stranger", "step 1: has the agent 'stranger', which is not among its possible_agents"),
        ("shape", "step 1: agent right returned an observation of shape (3,), its space has (2,)"),
        ("reward", "returned the reward nan"),
        ("unrewarded", "step 1: agent right has no reward"),
        ("no dict", "step 1: step() returned float as rewards: a dict by agent is needed"),
        ("all", "step 1: has a reward or an end of '__all__', which is not among its possible_agents"),
    ],
)
def test_mistakes_name_environment_step_and_agent(start, fault, problem):
    env = start(f"{MODULE}:Pushing(fault={fault!r})", 1)
    with pytest.raises(HostEnvError) as caught:
        play(env, np.zeros((12, 2, 1)))
    assert problem in str(caught.value)


def test_wrappers_for_one_agent_and_tasks_are_refused():
    for wrapper in ("previous_reward", "frame_stack(frames=2)"):
        with pytest.raises(ValueError, match="is for one agent; .* has 4"):
            envs.make_host(f"{MODULE}:Coming", (wrapper,))
    with pytest.raises(ValueError, match="needs a state of the whole"):
        envs.make_host(f"{MODULE}:Coming", ("central_observation",))
    assert not registry.host_takes_tasks(f"{MODULE}:Coming")


@pytest.mark.slow
def test_films_and_trials():
    film = filming.film(f"{MODULE}:Coming", ("agent_id",), seed=0)
    shots = [next(film)]
    while not shots[-1].over:
        shots.append(film.send(np.zeros(4, int)))
    film.close()
    assert [shot.obs.shape for shot in shots] == [(4, 13)] * 5
    assert [shot.fresh.tolist() for shot in shots[1:3]] == [
        [False, False, False, True],
        [True, False, False, False],
    ]
    found = env_check.play(f"{MODULE}:Coming(bonus=0)", (), 20)
    assert (len(found.returns), found.truncated, found.terminated) == (4, 4, 0)
    assert set(found.rewards) <= {0.0, 1.0, 2.0, 3.0}


def test_suite_that_is_not_installed_names_its_extra(monkeypatch):
    real = importlib.util.find_spec
    absent = lambda name, *rest: None if name == "pettingzoo" else real(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", absent)
    with pytest.raises(ImportError, match=r"environments need its package: .*\[pettingzoo\]"):
        envs.make_host("pettingzoo:simple_v3")
