"""Calls that the members of a population make together: one program computes the results of all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# A function of several members: their arguments by member to their results by member.
SharedFunction = Callable[[Mapping[int, Any]], Mapping[int, Any]]


class _Call(NamedTuple):
    function: SharedFunction
    arguments: Any
    is_urgent: bool


class SharedCalls:
    """Calls from members, each in its own thread, that run together once every member waits.

    Then one function is called for all members that wait for it; the others keep waiting. Members that want
    to train come first, so that a member resumed from an earlier step catches up.
    """

    def __init__(self, members: int) -> None:
        self._changed = threading.Condition()
        self._present = set(range(members))
        self._waiting: dict[int, _Call] = {}
        self._results: dict[int, Any] = {}

    def call(self, member: int, function: SharedFunction, arguments: Any, is_urgent: bool = False) -> Any:
        """Waits for the other members; returns the member's result of `function`, or raises its exception.

        Calls that are urgent run before others.
        """
        with self._changed:
            self._waiting[member] = _Call(function, arguments, is_urgent)
            self._run_if_all_wait()
            self._changed.wait_for(lambda: member in self._results)
            result = self._results.pop(member)
        if isinstance(result, BaseException):
            raise result
        return result

    def leave(self, member: int) -> None:
        """Removes a member, which makes no more calls: the others need not wait for it."""
        with self._changed:
            self._present.discard(member)
            self._run_if_all_wait()

    def _run_if_all_wait(self) -> None:
        """Runs the calls of one function, if every member waits."""
        if not self._present or self._present - self._waiting.keys():
            return
        function = min(self._waiting.values(), key=lambda call: not call.is_urgent).function
        arguments = {
            member: call.arguments for member, call in self._waiting.items() if call.function == function
        }
        try:
            self._results |= function(arguments)
        except Exception as error:
            self._results |= dict.fromkeys(arguments, error)
        for member in arguments:
            del self._waiting[member]
        self._changed.notify_all()
