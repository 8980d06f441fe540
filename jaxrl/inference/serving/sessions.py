"""Sessions: episodes in progress, each with its version of the policy."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import operator
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from jaxrl.inference.serving import Refusal
from jaxrl.inference.serving.served_policy import ServedPolicy

_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_MOST_WAITING = 64  # requests of one session that wait for their turn


@dataclasses.dataclass(eq=False, slots=True)
class ServingSession:
    """One client's episode.

    Attributes:
      policy: the version that the episode began with, whose carry it has.
      slot: the row of that carry.
      begins: True until the first observation of the episode.
      used: when it was used last, by `time.monotonic`.
      turn: held by the request that is being answered; requests of one session wait for each other.
      requests: that hold or await the turn.
      ended: True once its row may be another session's.
    """

    id: str
    policy: ServedPolicy
    slot: int
    begins: bool = True
    used: float = 0.0
    turn: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    requests: int = 0
    ended: bool = False


class Sessions:
    """All sessions, the least recently used first."""

    def __init__(self, limit: int, idle_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._open: OrderedDict[str, ServingSession] = OrderedDict()
        self.expired = 0

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, given: str | None, policy: ServedPolicy) -> ServingSession:
        """Makes a session; `policy` plays its first episode. Refusal for a bad name or too many sessions."""
        self.sweep()
        if given is not None and not _ID.fullmatch(given):
            raise Refusal(400, "`session` must be at most 128 of A-Z, a-z, 0-9, `.`, `_`, `~` and `-`")
        if len(self._open) >= self._limit or (slot := policy.take_slot()) is None:
            raise Refusal(429, f"there are {len(self._open)} sessions, as many as may be: try later")
        # A name that cannot be guessed: a client that knows it has the session.
        session = ServingSession(given or secrets.token_urlsafe(18), policy, slot)
        self._open[session.id] = session
        self._touch(session)
        return session

    def find(self, given: str) -> ServingSession | None:
        """A session by its name."""
        found = self._open.get(given)
        if found is not None and found.used <= self._clock() - self._idle_seconds:
            self.sweep()  # which spares it while a request of it is answered
            found = self._open.get(given)
        return found

    def restart(self, session: ServingSession, policy: ServedPolicy) -> None:
        """Begins an episode of `policy` in a session whose turn the caller holds; Refusal without room."""
        if session.policy is not policy:
            slot = policy.take_slot()
            if slot is None:
                raise Refusal(429, "the new version has no room for another session: try later")
            session.policy.give_slot(session.slot)
            session.policy = policy
            session.slot = slot
        session.begins = True

    def get(self, given: str) -> ServingSession:
        """A session by its name; raises Refusal if there is none, or no longer."""
        found = self.find(given)
        if found is None:
            raise unknown_session()
        self._touch(found)
        return found

    def end(self, session: ServingSession) -> None:
        """Forgets a session."""
        if not session.ended:
            session.ended = True
            del self._open[session.id]
            session.policy.give_slot(session.slot)

    def sweep(self) -> None:
        """Ends the sessions that were not used for too long."""
        oldest = self._clock() - self._idle_seconds
        unused = itertools.takewhile(lambda session: session.used <= oldest, self._open.values())
        for session in [session for session in unused if not session.requests]:
            self.end(session)
            self.expired += 1

    def policies(self) -> set[ServedPolicy]:
        """Versions that sessions are in the middle of an episode with."""
        return {session.policy for session in self._open.values()}

    def move_from(self, old: ServedPolicy, new: ServedPolicy) -> int:
        """Begins new episodes in all idle sessions of an old version; returns how many there were."""
        found = [s for s in self._open.values() if s.policy is old and not s.requests]
        for session in found:
            self.restart(session, new)
        return len(found)

    def _touch(self, session: ServingSession) -> None:
        session.used = self._clock()
        self._open.move_to_end(session.id)


class SessionTurns:
    """Waits for earlier requests of some sessions; in their order, so that none wait in a ring."""

    def __init__(self, sessions: list[ServingSession]) -> None:
        self._sessions = sessions
        self._held: list[ServingSession] = []

    async def __aenter__(self) -> list[ServingSession]:
        if max([session.requests for session in self._sessions]) >= _MOST_WAITING:
            raise Refusal(429, "too many requests of one session wait for their turn")
        for session in self._sessions:
            session.requests += 1
        try:
            for session in sorted(self._sessions, key=operator.attrgetter("id")):
                await session.turn.acquire()
                self._held.append(session)
                if session.ended:  # by a request before
                    raise unknown_session()
        except BaseException:
            await self.__aexit__()
            raise
        return self._sessions

    async def __aexit__(self, *error: object) -> None:
        for session in self._held:
            session.turn.release()
        for session in self._sessions:
            session.requests -= 1


def unknown_session() -> Refusal:
    return Refusal(404, 'no such session; "reset": true begins one, as POST /reset does; an unused one ends')
