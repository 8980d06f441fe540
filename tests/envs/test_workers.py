"""Worker processes of Gymnasium environments that misbehave, print, or mask actions."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from gymnasium import spaces

from jaxrl import envs
from jaxrl.envs.host.answers import checked_mask
from jaxrl.envs.host.shared import WorkerOutput
from jaxrl.envs.host.worker import Problem, Reader, describe
from jaxrl.envs.host_env import HostEnvError
from jaxrl.reporting.logs import log_to
from tests.envs.test_gymnasium import MODULE, alive, play


@pytest.mark.slow
def test_an_environment_that_hangs_in_close_holds_nothing_up(start):
    begin = time.monotonic()
    env = start(f"{MODULE}:HangInClose", num_workers=2)  # made once before, to ask for its spaces
    pids = env.process_ids
    play(env, np.zeros((1, 4), int))
    env.close()
    assert time.monotonic() - begin < 30
    assert not any(map(alive, pids))


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        ("1e300", "an observation with 1e+300 in it, which float32 cannot hold: scale or clip it"),
        (str(2**40), "an observation with 1099511627776 in it, which int32 cannot hold"),
    ],
)
def test_numbers_past_32_bits_are_named(start, number, problem):
    env = start(f"{MODULE}:Large(number={number})", num_envs=1)
    with pytest.raises(HostEnvError) as caught:
        env.recv(0)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("space", "given", "stored"),
    [
        (spaces.Box(-9, 9, (2,), np.float32), np.array([0.5, 1 / 3]), [0.5, np.float32(1 / 3)]),
        (spaces.Box(-9, 9, (2,), np.float32), [1, 2], [1.0, 2.0]),
        (
            spaces.Box(-9, 9, (2,), np.float32),
            [2**24 + 1, 0],
            "with 16777217 in it, which float32 cannot hold",
        ),
        (spaces.Box(-9, 9, (2,), np.float32), np.array(["1", "2"]), "of dtype <U1, its space has float32"),
        (spaces.Box(-9, 9, (2,), np.int32), np.array([-3, 4]), [-3, 4]),
        (spaces.Box(-9, 9, (2,), np.int32), np.zeros(2), [0, 0]),
        (spaces.Box(-9, 9, (2,), np.int32), [0.5, 1.0], "with 0.5 in it, which int32 cannot hold"),
        (spaces.Box(-9, 9, (2,), np.int32), [np.nan, 1.0], "with nan in it, which int32 cannot hold"),
        (spaces.Box(-9, 9, (2,), np.int32), [2**40, 0], "with 1099511627776 in it, which int32 cannot hold"),
        (spaces.Box(0, 255, (2,), np.uint8), [0, 255], [0, 255]),
        (spaces.Box(0, 255, (2,), np.uint8), [-1, 0], "with -1 in it, which uint8 cannot hold"),
        (spaces.Box(0, 255, (2,), np.uint8), [256, 0], "with 256 in it, which uint8 cannot hold"),
        (spaces.Box(0, 1, (2,), bool), [0, 1], [False, True]),
        (spaces.Box(0, 1, (2,), bool), [0, 2], "with 2 in it, which bool cannot hold"),
        (spaces.MultiBinary(2), np.array([True, False]), [1, 0]),
        (spaces.MultiBinary(2), [1.0, 0.0], [1, 0]),
        (spaces.MultiBinary(2), [1, 2], "outside its space"),
        (spaces.MultiDiscrete([3, 3], start=[1, 1]), np.array([1.0, 3.0]), [0, 2]),
        (spaces.MultiDiscrete([3, 3]), [0.5, 1], "outside its space"),
        (spaces.MultiDiscrete([3, 3]), [np.nan, 1], "outside its space"),
        (spaces.Discrete(2), True, 1),
        (spaces.Discrete(3, start=-1), np.float64(1), 2),
    ],
)
def test_numbers_of_other_types_are_converted_where_they_fit(space, given, stored):
    (leaf,) = describe(space)
    out = np.zeros(leaf["shape"], leaf["stored"])
    if isinstance(stored, str):
        with pytest.raises(Problem) as caught:
            Reader(leaf, out).read(given)
        assert stored in str(caught.value)
    else:
        Reader(leaf, out).read(given)
        np.testing.assert_array_equal(out, stored, strict=False)


def test_what_environments_print_goes_to_the_log(start, capfd, tmp_path):
    with log_to(tmp_path / "train.log"):
        env = start(f"{MODULE}:Printing", num_envs=2, num_workers=1)
        with pytest.raises(HostEnvError, match="exited with code 9") as caught:
            play(env, np.zeros((4, 2), int))
        env.close()
    assert capfd.readouterr() == ("", "")
    text = (tmp_path / "train.log").read_text()
    for said in ("step 0", "step 1", "a warning", "the motor is hot"):
        assert f"{MODULE}:Printing, environments 0 to 1 printed: {said}\n" in text
    # What it said last is the cause of the error, for --debug.
    assert "the motor is hot" in str(caught.value.__cause__)


def test_floods_are_read_and_left_out_of_the_log(tmp_path):
    read, write = os.pipe()
    with log_to(tmp_path / "train.log"):
        output = WorkerOutput(read, "somebody")
        with os.fdopen(write, "w") as stream:
            for i in range(20_000):
                print(f"{i:>99}", file=stream)  # blocks where nobody reads
        output.join(30)
    lines = (tmp_path / "train.log").read_text().splitlines()
    assert 10_000 < len(lines) < 11_000
    assert lines[-1].endswith("the rest is left out")
    assert output.last[-1].strip() == "19999"


@pytest.mark.parametrize("given", ["info", pytest.param("method", marks=pytest.mark.slow)])
def test_action_masks_reach_the_policy(start, given):
    env = start(f"{MODULE}:Masked(given={given!r})", num_groups=2, num_workers=2)
    assert env.spec.has_action_mask
    rng = np.random.default_rng(0)
    for t in range(9):
        for group in range(2):
            step = env.recv(group)
            mask = env.action_mask(step.obs)
            assert (mask.shape, mask.dtype) == ((2, 4), bool)
            time = env.decode(step.obs)[:, 2].astype(int)
            np.testing.assert_array_equal(time, t % 4)
            # Where an episode has ended no action follows, so none is forbidden.
            expected = np.arange(4)[None] == time[:, None]
            np.testing.assert_array_equal(mask, np.where(step.done[:, None], True, expected))
            env.send(group, np.array([rng.choice(np.flatnonzero(row)) for row in mask]))


@pytest.mark.parametrize(
    ("form", "given"),
    [
        pytest.param("list", "method", marks=pytest.mark.slow),
        pytest.param("tuple", "info", marks=pytest.mark.slow),
        ("float", "obs"),
    ],
)
def test_masks_of_components_come_in_every_form(start, form, given):
    env = start(f"{MODULE}:Parts(form={form!r}, given={given!r})", num_envs=1)
    for t in range(4):
        step = env.recv(0)
        allowed = [*(np.arange(3) == t % 3), *(np.arange(2) == t % 2)]
        assert env.action_mask(step.obs)[0].tolist() == allowed
        env.send(0, np.array([[t % 3, t % 2]]))
    # Used as a mask, it is no part of what the policy sees.
    assert given != "obs" or sorted(env.decode(step.obs)) == ["more", "time"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([[1, 0, 0], [0, 0]], "allows no action for component 1 by it"),
        (np.float32([0, 0, 0, 1, 1]), "allows no action for component 0 by it"),
        ([1.0, 0.5, 0.0, 1.0, 1.0], "gave 0.5 in it, which may hold 1 (allowed) and 0"),
        ([np.nan, 1.0, 0.0, 1.0, 1.0], "gave nan in it"),
        ([2, 0, 0, 1, 0], "gave 2 in it"),
        ([[1, 0, 0], [1, 0, 0, 0]], "gave list as it, its action space needs bool[5]"),
        ([[1, 0, 0]], "gave int64[1, 3] as it, its action space needs bool[5]"),
        (None, "gave NoneType as it"),
    ],
)
def test_wrong_masks_of_components_are_named(given, problem):
    with pytest.raises(Problem) as caught:
        checked_mask(given, "it", [3, 2], ended=False)
    assert problem in str(caught.value)
    # No action follows the end of an episode, so that none is missed there.
    assert "allows no" not in problem or checked_mask(given, "it", [3, 2], ended=True).all()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("given='late'", "step 1: gives info['action_mask'], which it did not when it was made"),
        pytest.param(
            "actions='box'",
            "step 1: gives info['action_mask'], but masks are for Discrete, MultiDiscrete and MultiBinary",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_masks_in_infos_that_would_be_passed_over_are_named(start, arguments, problem):
    env = start(f"{MODULE}:Parts({arguments})", num_envs=1)
    if "late" in arguments:
        env.recv(0)
        env.send(0, np.zeros((1, 2), np.int32))
    with pytest.raises(HostEnvError, match="environment 0, ") as caught:
        env.recv(0)
    assert problem in str(caught.value)


@pytest.mark.parametrize("actions", ["box", pytest.param("dict", marks=pytest.mark.slow)])
def test_masks_of_actions_that_have_none_are_named(actions):
    name = f"{MODULE}:Parts(given='method', actions={actions!r})"
    with pytest.raises(
        ValueError, match=r"has action_masks\(\), and its actions are .* masks are for Discrete"
    ):
        envs.make_host(name)
    name = f"{MODULE}:Parts(given='obs', actions={actions!r}"
    with pytest.raises(ValueError, match=r"hold 'action_mask', but masks .* by keys=\(...\)"):
        envs.make_host(f"{name})")
    seen = envs.make_host(f"{name}, keys=('action_mask', 'time'))").spec
    assert [key for key, _ in seen.observation_space.spaces] == ["action_mask", "time"]
    assert not seen.has_action_mask


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("nothing", "allows no action by info['action_mask']"),
        ("shape", "gave int8[3] as info['action_mask'], its action space needs bool[4]"),
        ("text", "gave str as info['action_mask']"),
    ],
)
def test_wrong_masks_name_environment_and_step(start, fault, problem):
    env = start(f"{MODULE}:Masked(fault={fault!r})", num_envs=1)
    with pytest.raises(HostEnvError, match="environment 0, step 1: ") as caught:
        env.recv(0)
    assert problem in str(caught.value)


def test_environments_without_masks_have_none(start):
    assert not envs.make_host(f"{MODULE}:Count").spec.has_action_mask
    assert not envs.make_host(f"{MODULE}:Pusher").spec.has_action_mask
    assert envs.make_host("gymnasium:Taxi-v4").spec.has_action_mask
