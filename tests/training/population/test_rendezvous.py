"""Members wait for each other, and are served together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from jaxrl.training.population.rendezvous import Rendezvous


class Recorder:
    """A service that answers each member with its argument doubled, and notes whom it served."""

    def __init__(self) -> None:
        self.calls: list[set[int]] = []

    def __call__(self, asked: Mapping[int, Any]) -> dict[int, Any]:
        self.calls.append(set(asked))
        return {member: 2 * x for member, x in asked.items()}


def in_threads(count: int, work: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a member waits for ever"


def test_all_members_are_served_at_once() -> None:
    rendezvous, service, answers = Rendezvous(3), Recorder(), dict[int, Any]()

    def work(member: int) -> None:
        answers[member] = [rendezvous.ask(member, service, 10 * round_ + member) for round_ in range(3)]
        rendezvous.leave(member)

    in_threads(3, work)
    assert answers == {i: [2 * i, 20 + 2 * i, 40 + 2 * i] for i in range(3)}
    assert service.calls == [{0, 1, 2}] * 3


def test_nobody_waits_for_a_member_that_has_left() -> None:
    rendezvous, service = Rendezvous(3), Recorder()

    def work(member: int) -> None:
        for _ in range(member):
            rendezvous.ask(member, service, 0)
        rendezvous.leave(member)

    in_threads(3, work)
    assert service.calls == [{1, 2}, {2}]


def test_urgent_requests_come_first_and_the_others_wait() -> None:
    rendezvous, advance, evaluate = Rendezvous(2), Recorder(), Recorder()
    order: list[str] = []

    def noted(name: str, service: Recorder) -> Callable[[Mapping[int, Any]], Mapping[int, Any]]:
        def call(asked: Mapping[int, Any]) -> Mapping[int, Any]:
            order.append(f"{name} {sorted(asked)}")
            return service(asked)

        return call

    advancing, evaluating = noted("advance", advance), noted("evaluate", evaluate)

    def work(member: int) -> None:
        for _ in range(1 + 2 * member):  # The second lags behind by two.
            rendezvous.ask(member, advancing, 0, is_urgent=True)
        rendezvous.ask(member, evaluating, 0)
        rendezvous.leave(member)

    in_threads(2, work)
    assert order == ["advance [0, 1]", "advance [1]", "advance [1]", "evaluate [0, 1]"]


def test_an_error_reaches_every_member_that_asked_and_ends_nothing() -> None:
    rendezvous, found = Rendezvous(2), dict[int, list[str]]()

    def failing(asked: Mapping[int, Any]) -> Mapping[int, Any]:
        raise RuntimeError("out of memory")

    service = Recorder()

    def work(member: int) -> None:
        with pytest.raises(RuntimeError, match="out of memory"):
            rendezvous.ask(member, failing, 0)
        found[member] = [rendezvous.ask(member, service, "x")]
        rendezvous.leave(member)

    in_threads(2, work)
    assert found == {0: ["xx"], 1: ["xx"]}
