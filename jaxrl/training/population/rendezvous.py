"""Gathers what the members of a population ask for, until one program can answer all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Takes the arguments of the members that ask, by member; returns their answers.
Service = Callable[[Mapping[int, Any]], Mapping[int, Any]]


@dataclass(frozen=True)
class _Request:
    """What one member asks for.

    Attributes:
      service: answers it, together with the requests of other members.
      arguments: for the service.
      is_urgent: whether it comes before others.
    """

    service: Service
    arguments: Any
    is_urgent: bool


class Rendezvous:
    """Members, each in a thread of its own, that wait for each other and are then served together.

    Once every member waits, one service answers all that ask for it; the others go on waiting. Members that
    want to train come first, so that one which was resumed from an earlier step catches up.
    """

    def __init__(self, members: int) -> None:
        self._changed = threading.Condition()
        self._present = set(range(members))
        self._asking: dict[int, _Request] = {}
        self._answers: dict[int, Any] = {}

    def ask(self, member: int, service: Service, arguments: Any, is_urgent: bool = False) -> Any:
        """Waits for the other members; returns what `service` answers this one.

        Raises:
          Exception: whatever the service raises, in each member that asked for it.
        """
        with self._changed:
            self._asking[member] = _Request(service, arguments, is_urgent)
            self._serve()
            self._changed.wait_for(lambda: member in self._answers)
            answer = self._answers.pop(member)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def leave(self, member: int) -> None:
        """Says that a member asks for nothing any more; the others need not wait for it."""
        with self._changed:
            self._present.discard(member)
            self._serve()

    def _serve(self) -> None:
        """Answers one service's requests, if nobody is left to wait for."""
        if not self._present or self._present - self._asking.keys():
            return
        chosen = min(self._asking.values(), key=lambda request: not request.is_urgent).service
        asking = {
            member: request.arguments for member, request in self._asking.items() if request.service == chosen
        }
        try:
            self._answers |= chosen(asking)
        except Exception as error:
            self._answers |= dict.fromkeys(asking, error)
        for member in asking:
            del self._asking[member]
        self._changed.notify_all()
