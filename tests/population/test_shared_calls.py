"""Members wait for each other, and their calls run together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from jaxrl.population.shared_calls import SharedCalls


class Recorder:
    """A function that doubles the argument of each member, and records the members of each call."""

    def __init__(self) -> None:
        self.calls: list[set[int]] = []

    def __call__(self, arguments: Mapping[int, Any]) -> dict[int, Any]:
        self.calls.append(set(arguments))
        return {member: 2 * x for member, x in arguments.items()}


def in_threads(count: int, work: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a member waits for ever"


def test_the_calls_of_all_members_run_at_once() -> None:
    calls, double, answers = SharedCalls(3), Recorder(), dict[int, Any]()

    def work(member: int) -> None:
        answers[member] = [calls.call(member, double, 10 * round_ + member) for round_ in range(3)]
        calls.leave(member)

    in_threads(3, work)
    assert answers == {i: [2 * i, 20 + 2 * i, 40 + 2 * i] for i in range(3)}
    assert double.calls == [{0, 1, 2}] * 3


def test_nobody_waits_for_a_member_that_has_left() -> None:
    calls, double = SharedCalls(3), Recorder()

    def work(member: int) -> None:
        for _ in range(member):
            calls.call(member, double, 0)
        calls.leave(member)

    in_threads(3, work)
    assert double.calls == [{1, 2}, {2}]


def test_urgent_calls_come_first_and_the_others_wait() -> None:
    calls, advance, evaluate = SharedCalls(2), Recorder(), Recorder()
    order: list[str] = []

    def record(name: str, function: Recorder) -> Callable[[Mapping[int, Any]], Mapping[int, Any]]:
        def call(arguments: Mapping[int, Any]) -> Mapping[int, Any]:
            order.append(f"{name} {sorted(arguments)}")
            return function(arguments)

        return call

    advancing, evaluating = record("advance", advance), record("evaluate", evaluate)

    def work(member: int) -> None:
        for _ in range(1 + 2 * member):  # The second lags behind by two.
            calls.call(member, advancing, 0, is_urgent=True)
        calls.call(member, evaluating, 0)
        calls.leave(member)

    in_threads(2, work)
    assert order == ["advance [0, 1]", "advance [1]", "advance [1]", "evaluate [0, 1]"]


def test_an_error_reaches_every_member_that_called_and_ends_nothing() -> None:
    calls, found = SharedCalls(2), dict[int, list[str]]()

    def failing(arguments: Mapping[int, Any]) -> Mapping[int, Any]:
        raise RuntimeError("out of memory")

    double = Recorder()

    def work(member: int) -> None:
        with pytest.raises(RuntimeError, match="out of memory"):
            calls.call(member, failing, 0)
        found[member] = [calls.call(member, double, "x")]
        calls.leave(member)

    in_threads(2, work)
    assert found == {0: ["xx"], 1: ["xx"]}
