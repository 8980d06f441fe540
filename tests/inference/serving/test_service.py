"""Acting for sessions inside of one process: bits, turns, expiry, versions, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxrl
from jaxrl.config import ConfigError
from jaxrl.inference.serving import Refusal, ServerOptions, runtimes, served_policy
from jaxrl.inference.serving.served_policy import ServedPolicy
from jaxrl.inference.serving.service import PolicyService
from jaxrl.inference.serving.sessions import Sessions
from tests.inference.runs import save_run
from tests.inference.serving.models import altered, write_model

STEPS = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An LSTM's, with a normaliser."""
    folder = tmp_path_factory.mktemp("model") / "walker"
    return write_model(folder, env__name="gymnax:CartPole-v1", normalize__observations=True)


def served(model: Path, runtime: str = "numpy", slots: int = 20, largest: int = 8) -> ServedPolicy:
    return served_policy.read(model, model.name, runtime, largest, slots)


def service_of(policy: ServedPolicy, **options: Any) -> PolicyService:
    return PolicyService(policy, ServerOptions(largest_batch=8, token="", **options))


def observations(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(STEPS, 4)).astype(np.float32)


async def play(service: PolicyService, name: str, seed: int, pause: bool = False) -> list[Any]:
    """Actions of an episode, and in the end the carry."""
    await service.reset({"session": name})
    actions = []
    for obs in observations(seed):
        actions.append((await service.act({"session": name, "obs": obs.tolist()}))["action"])
        if pause:  # others come between
            await asyncio.sleep(0)
    session = service.sessions.get(name)
    return [actions, *(x[session.slot].copy() for x in session.policy._carry.values())]


@pytest.mark.parametrize("runtime", ["numpy", "onnx", "stablehlo"])
def test_interleaved_sessions_are_those_played_alone_bit_for_bit(model: Path, runtime: str) -> None:
    policy = served(model, runtime)
    alone = [asyncio.run(play(service_of(policy), f"alone{i}", i)) for i in range(9)]

    async def together() -> tuple[list[list[Any]], int]:
        service = service_of(policy)
        found = await asyncio.gather(*(play(service, f"with{i}", i, pause=i % 2 == 0) for i in range(9)))
        return found, service.batcher.passes

    found, passes = asyncio.run(together())
    assert passes < 9 * STEPS / 2  # they shared passes
    for ours, theirs in zip(found, alone, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    assert any(np.any(found[0][1] != other[1]) for other in found[1:])


def test_runtimes_act_alike_and_the_fastest_is_taken(model: Path) -> None:
    policies = {kind: served(model, kind) for kind in ("numpy", "onnx", "stablehlo")}
    played = {kind: asyncio.run(play(service_of(p), "one", 3)) for kind, p in policies.items()}
    for kind in ("onnx", "stablehlo"):
        assert played[kind][0] == played["numpy"][0]
        np.testing.assert_allclose(played[kind][1], played["numpy"][1], rtol=1e-4, atol=1e-5)
    assert len(set(played["numpy"][0])) == 2
    chosen = served_policy.read(model, "m", "", 8, 2)
    costs = [timing.cost for timing in chosen.timings]
    assert costs == sorted(costs)
    assert {timing.kind for timing in chosen.timings} == set(policies)
    # Every size gives a row the bits of the largest.
    given = runtimes.draw(chosen.facts, chosen.reader, 8, np.random.default_rng(5))
    action, after = chosen.run(given)
    for size in chosen.sizes:
        part, carry = chosen.run({name: x[:size] for name, x in given.items()})
        np.testing.assert_array_equal(part, action[:size])
        for name, x in carry.items():
            np.testing.assert_array_equal(x, after[name][:size])


def test_a_reset_forgets_and_a_batch_is_its_rows(model: Path) -> None:
    policy = served(model)

    async def run() -> None:
        service = service_of(policy)
        first = await play(service, "a", 1)
        again = await play(service, "a", 1)
        assert all(np.array_equal(x, y) for x, y in zip(again, first, strict=True))
        # `reset` in the request itself, and three rows at once.
        for name in "bcd":
            await service.reset({"session": name})
        for t, obs in enumerate(observations(1)):
            answer = await service.act(
                {"session": ["b", "c", "d"], "obs": [obs.tolist()] * 3, "reset": [False, t == 5, False]}
            )
            assert answer["action"].shape == (3,)
            assert answer["action"][0] == answer["action"][2] == first[0][t]
        slots = [service.sessions.get(name).slot for name in "bcd"]
        for x, expected in zip(policy._carry.values(), first[1:], strict=True):
            np.testing.assert_array_equal(x[slots[0]], expected)
            np.testing.assert_array_equal(x[slots[2]], expected)
            assert np.any(x[slots[1]] != expected)

    asyncio.run(run())


def test_what_the_error_without_a_session_says_works_at_once(model: Path) -> None:
    policy = served(model)

    async def run() -> None:
        service = service_of(policy)
        expected = (await play(service, "a", 1))[0]
        obs = observations(1).tolist()
        with pytest.raises(Refusal) as caught:
            await service.act({"obs": obs[0]})
        added = json.loads(
            "{" + str(re.findall(r'Add ("session".*) at the start', str(caught.value))[0]) + "}"
        )
        found = [(await service.act({"obs": obs[0], **added}))["action"]]
        found += [(await service.act({"obs": x, "session": added["session"]}))["action"] for x in obs[1:]]
        assert found == expected
        # All sessions of a batch begin, or none.
        for names, reset, why in (
            (["new", "newer"], [True, False], "no such session"),
            (["new", "not a name"], True, "must be at most 128 of"),
        ):
            with pytest.raises(Refusal, match=why):
                await service.act({"session": names, "obs": [obs[0]] * 2, "reset": reset})
            assert service.sessions.find("new") is None
        answer = await service.act({"session": ["new", "me"], "obs": [obs[0], obs[0]], "reset": True})
        assert answer["action"].tolist() == [expected[0]] * 2

    asyncio.run(run())


@pytest.mark.parametrize("is_slow", [False, True])
def test_an_observation_that_does_not_fit_is_refused_alone(model: Path, is_slow: bool) -> None:
    """Those that share its pass are answered, and its session continues as if nothing had been asked."""
    policy = served(model)
    expected = asyncio.run(play(service_of(policy), "alone", 6))

    async def run() -> None:
        service = service_of(policy)
        policy.is_slow = is_slow
        wrong = [
            ([float("nan"), 0.0, 0.0, 0.0], "`obs` must be finite in float32"),
            ([0.0, "x", 0.0, 0.0], "`obs` is of str"),
            ([0.0, {}, 0.0, 0.0], "`obs` is of object"),
            ([1e300, 0.0, 0.0, 0.0], "`obs` must be finite in float32"),
        ]
        names = "abcd"
        for name in names:
            await service.reset({"session": name})
        for t, obs in enumerate(observations(6).tolist()):
            bad, said = wrong[t % 4]
            asks = [service.act({"session": x, "obs": bad if x == "a" else obs}) for x in names]
            refused, *found = await asyncio.gather(*asks, return_exceptions=True)
            assert isinstance(refused, Refusal)
            assert refused.status == 400
            assert str(refused).startswith(said)
            # Also without others, and where it would begin an episode.
            for session in (
                {"session": "a"},
                {"session": "a", "reset": True},
                {"session": "new", "reset": True},
            ):
                with pytest.raises(Refusal, match=said):
                    await service.act({**session, "obs": bad})
            found.append(await service.act({"session": "a", "obs": obs}))
            assert [answer["action"] for answer in found] == [expected[0][t]] * 4
        assert service.sessions.find("new") is None
        for name in names:
            slot = service.sessions.get(name).slot
            for x, carry in zip(policy._carry.values(), expected[1:], strict=True):
                np.testing.assert_array_equal(x[slot], carry)

    asyncio.run(run())


def test_single_requests_and_batches_share_a_pass(model: Path) -> None:
    policy = served(model)
    expected = asyncio.run(play(service_of(policy), "alone", 7))

    async def run() -> None:
        service = service_of(policy)
        for t, obs in enumerate(observations(7).tolist()):
            asks: list[dict[str, Any]] = [
                {"session": ["a", "b"], "obs": [obs, obs]},
                {"session": "c", "obs": obs},
            ]
            asks += [{"session": "d", "obs": obs}, {"session": "e", "obs": np.array(obs, np.float32)}]
            beginning = {"reset": True} if t == 0 else {}
            found = await asyncio.gather(*(service.act(ask | beginning) for ask in asks))
            assert np.hstack([answer["action"] for answer in found]).tolist() == [expected[0][t]] * 5
        assert service.batcher.passes == STEPS

    asyncio.run(run())


def test_requests_of_one_session_take_turns(model: Path) -> None:
    policy = served(model)

    async def run() -> None:
        service = service_of(policy)
        first = await play(service, "a", 2)
        await service.reset({"session": "b"})
        asked = [service.act({"session": "b", "obs": obs.tolist()}) for obs in observations(2)]
        assert [answer["action"] for answer in await asyncio.gather(*asked)] == first[0]
        # One that ends while others wait: they are told, and its row is not written again.
        asks = [service.act({"session": "b", "obs": [0.0] * 4}), service.reset({"session": "b", "end": True})]
        asks += [service.act({"session": "b", "obs": [0.0] * 4}) for _ in range(2)]
        found = await asyncio.gather(*asks, return_exceptions=True)
        assert [getattr(x, "status", 200) for x in found] == [200, 200, 404, 404]
        assert len(service.sessions) == 1
        free = set(policy._free)
        assert all(not x[list(free)].any() for x in policy._carry.values())
        with pytest.raises(Refusal, match="wait for their turn"):
            await asyncio.gather(*(service.act({"session": "a", "obs": [0.0] * 4}) for _ in range(100)))

    asyncio.run(run())


def test_sessions_end_and_are_limited(model: Path) -> None:
    policy, now = served(model, slots=3), [0.0]
    sessions = Sessions(2, 10.0, lambda: now[0])
    first = sessions.begin(None, policy)
    now[0] = 6.0
    second = sessions.begin("mine", policy)
    assert len(first.id) > 20  # nobody guesses it
    with pytest.raises(Refusal, match="there are 2 sessions") as caught:
        sessions.begin(None, policy)
    assert caught.value.status == 429
    for x in policy._carry.values():
        x[first.slot] = 7
    now[0] = 10.5
    with pytest.raises(Refusal, match="no such session"):
        sessions.get(first.id)
    assert sessions.get("mine") is second
    assert sessions.expired == 1
    third = sessions.begin(None, policy)
    assert third.slot == first.slot
    assert not any(x[third.slot].any() for x in policy._carry.values())
    second.requests = 1  # being answered
    now[0] = 100.0
    assert sessions.find(third.id) is None
    assert sessions.find("mine") is second
    second.requests = 0
    sessions.begin(None, policy)  # `mine` makes room
    assert sessions.find("mine") is None


def test_an_episode_ends_with_the_version_that_it_began_with(model: Path, tmp_path: Path) -> None:
    old = served(model)
    new = served(altered(model, tmp_path / "new"))

    async def run() -> None:
        service = service_of(old)
        expected_old, expected_new = await play(service, "x", 4), await play(service_of(new), "x", 4)
        assert np.any(expected_old[1] != expected_new[1])
        await service.reset({"session": "a"})
        for t, obs in enumerate(observations(4)):
            if t == 6:
                service.take_over(new)
                assert (await service.reset({"session": "b"}))["model"] == "new"
            answer = await service.act({"session": "a", "obs": obs.tolist()})
            assert (answer["action"], answer["model"]) == (expected_old[0][t], old.facts.label)
        session = service.sessions.get("a")
        for x, expected in zip(old._carry.values(), expected_old[1:], strict=True):
            np.testing.assert_array_equal(x[session.slot], expected)
        # A batch of two versions.
        answer = await service.act({"session": ["a", "b"], "obs": [[0.0] * 4] * 2})
        assert answer["model"] == sorted(["new", old.facts.label])
        # The next episode is the new version's.
        found = await play(service, "a", 4)
        assert all(np.array_equal(x, y) for x, y in zip(found, expected_new, strict=True))
        assert service.sessions.policies() == {old, new}  # "x" has not begun another one

    asyncio.run(run())
    space = {"action": {"type": "discrete", "shape": [], "dtype": "int32", "n": 3}}
    with pytest.raises(Refusal, match="other spaces"):
        service_of(old).take_over(served(altered(model, tmp_path / "other", **space)))


@pytest.mark.slow
def test_of_too_many_versions_the_oldest_goes(model: Path) -> None:
    policies = [served(model) for _ in range(6)]

    async def run() -> None:
        service = service_of(policies[0])
        for i, policy in enumerate(policies):
            if i:
                service.take_over(policy)
            await service.reset({"session": f"s{i}"})
        # Four versions are kept; sessions of older ones begin anew in the version that came then.
        kept = [policies.index(service.sessions.get(f"s{i}").policy) for i in range(6)]
        assert kept == [4, 5, 2, 3, 4, 5]
        assert service.sessions.get("s0").begins
        assert len(policies[0]._free) == 20
        # One that nobody is in an episode with is freed.
        gone = weakref.ref(policies.pop(0))
        gc.collect()
        assert gone() is None
        assert len(service._order) == 5

    asyncio.run(run())


def test_a_slow_policy_runs_beside_the_requests(model: Path) -> None:
    policy = served(model)
    policy.is_slow = True
    fast = asyncio.run(play(service_of(served(model)), "a", 5))

    async def run() -> list[list[Any]]:
        service = service_of(policy, wait_seconds=0.002)
        return await asyncio.gather(*(play(service, f"s{i}", 5) for i in range(5)))

    for found in asyncio.run(run()):
        assert all(np.array_equal(x, y) for x, y in zip(found, fast, strict=True))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda f: (f / "policy.json").write_text("{}"), "is damaged: policy.json"),
        (lambda f: (f / "checksums.json").unlink(), "is damaged: checksums.json"),
        (lambda f: (f / "extra.py").touch(), "is damaged: extra.py: not listed"),
    ],
)
def test_damaged_models_are_one_line(model: Path, tmp_path: Path, harm: Any, said: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    harm(folder)
    with pytest.raises(ConfigError, match=said):
        served(folder)


@pytest.mark.parametrize("content", ["[]", "{}", '{"observation": 3, "action": 3, "action_mask": null}'])
def test_files_that_describe_nothing_are_one_line(model: Path, tmp_path: Path, content: str) -> None:
    from jaxrl.runs.registry import write_checksums

    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    (folder / "spaces.json").write_text(content)
    write_checksums(folder)
    with pytest.raises(ConfigError, match="cannot be served") as caught:
        served(folder)
    assert "\n" not in str(caught.value)


def test_a_program_that_calls_code_outside_of_itself_is_refused(tmp_path: Path) -> None:
    import jax
    from jax import export

    shape = jax.ShapeDtypeStruct((2,), np.float32)
    checks = [export.DisabledSafetyCheck.custom_call("run_anything")]
    act = jax.jit(jax.ffi.ffi_call("run_anything", shape))
    program = export.export(act, disabled_checks=checks)(shape).serialize()
    (tmp_path / "policy.stablehlo").write_bytes(program)
    with pytest.raises(ConfigError, match="calls code outside of itself"):
        runtimes.load("stablehlo", tmp_path, (), ())


@pytest.mark.slow
def test_a_run_is_served_as_its_policy_acts(tmp_path: Path) -> None:
    save_run(tmp_path / "run", env__name="gymnax:CartPole-v1", network__core="none")
    options = ServerOptions(largest_batch=8, sessions=4, token="")
    policy = served_policy.read_folder(str(tmp_path / "run"), "latest", False, options)
    assert {timing.kind for timing in policy.timings} == {"numpy", "onnx", "stablehlo"}
    # Clients are told no path of the server's disk.
    assert re.fullmatch(r"run step \d+", policy.facts.label)
    loaded, obs = jaxrl.load(tmp_path / "run"), observations(0)[:8]

    async def run() -> None:
        service = PolicyService(policy, options)
        # Without memory no session is needed.
        found = await service.act({"obs": obs.tolist()})
        np.testing.assert_array_equal(found["action"], loaded.act(obs)[0])
        assert (await service.act({"obs": obs[0].tolist()}))["action"] == loaded.act(obs[0])[0]
        with pytest.raises(Refusal, match="9 rows, it may have 8"):
            await service.act({"obs": [[0.0] * 4] * 9})

    asyncio.run(run())
