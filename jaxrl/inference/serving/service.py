"""The work on a decoded request: sessions, episodes, actions, new versions of the policy."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl.inference.serving import Refusal, ServerOptions
from jaxrl.inference.serving.batching import Batcher, rows_of
from jaxrl.inference.serving.served_policy import ServedPolicy
from jaxrl.inference.serving.sessions import ServingSession, Sessions, SessionTurns, unknown_session

_ACT = {"session", "obs", "reset", "action_mask"}
_RESET = {"session", "end"}
_MOST_VERSIONS = 4  # that sessions may still be in an episode with

log = logging.getLogger(__name__)


class PolicyService:
    """Acts for sessions.

    Attributes:
      policy: the version that new episodes begin with.
      sessions, batcher: of all versions.
      taken_over: how many new versions there have been.
    """

    def __init__(self, policy: ServedPolicy, options: ServerOptions) -> None:
        self.policy = policy
        # When each came. Weak: a version that no session is in an episode with is freed.
        self._order = weakref.WeakKeyDictionary({policy: 0})
        self.sessions = Sessions(options.sessions, options.idle_seconds)
        self.batcher = Batcher(options.largest_batch, options.wait_seconds)
        self.largest_batch = options.largest_batch
        self.taken_over = 0

    def take_over(self, policy: ServedPolicy) -> None:
        """Uses a version for new episodes; episodes in progress end with the version they have.

        A carry belongs to the parameters that wrote it, so it never goes from one version to another.

        Raises:
          Refusal: its spaces differ.
        """
        if policy.facts.spaces != self.policy.facts.spaces:
            raise Refusal(409, f"{policy.facts.label} has other spaces than {self.policy.facts.label}")
        old = self.policy
        self.policy = policy
        self.taken_over += 1
        if not policy.remembers and not old.remembers:
            self.sessions.move_from(old, policy)
        self._order[policy] = self.taken_over
        in_use = sorted(self.sessions.policies() | {policy}, key=self._order.__getitem__)
        for stale in in_use[:-_MOST_VERSIONS]:
            moved = self.sessions.move_from(stale, policy)
            log.warning("%d sessions of %s began new episodes: too many versions", moved, stale.facts.label)

    async def reset(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Begins an episode, in a new session or in the one that is named; or ends that one."""
        _require_keys(content, _RESET)
        given = content.get("session")
        if given is not None and not isinstance(given, str):
            raise Refusal(400, "`session` must be text")
        ends = content.get("end", False)
        if not isinstance(ends, bool):
            raise Refusal(400, "`end` must be true or false")
        if ends:
            async with SessionTurns([self.sessions.get(given or "")]) as (session,):
                self.sessions.end(session)
            return {"session": session.id, "ended": True}
        found = self.sessions.find(given) if given is not None else None
        if found is None:
            session = self.sessions.begin(given, self.policy)
        else:
            async with SessionTurns([self.sessions.get(found.id)]) as (session,):
                self.sessions.restart(session, self.policy)
        return {"session": session.id, "model": session.policy.facts.label}

    async def act(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The action of an observation, or the actions of a batch; Refusal if something does not fit."""
        _require_keys(content, _ACT)
        if "obs" not in content:
            raise Refusal(400, "`obs` is missing")
        obs = content["obs"]
        begins = content.get("reset", False)  # one value stands for all rows
        # An observation that continues an episode is read later, with those of other requests.
        single, count = True, 1
        if begins is not False or not self.policy.reader.is_one(obs):
            single, obs = self.policy.reader.read(obs)
            count = len(next(iter(obs.values())))
        if count > self.largest_batch:
            raise Refusal(400, f"`obs` has {count} rows, it may have {self.largest_batch}")
        names = self._names(content.get("session"), single, count)
        mask = self._mask(content.get("action_mask"), single, count)
        one = isinstance(begins, bool)
        reset = [begins] * count if one else _booleans("reset", begins, (count,)).tolist()
        if names is None:
            action = await self._act_without_session(obs, mask, count)
            labels = [self.policy.facts.label]
        else:
            if any(reset):
                self._begin_missing(names, reset)
            async with SessionTurns([self.sessions.get(name) for name in names]) as sessions:
                action = await self._act_in(sessions, obs, mask, reset)
                labels = sorted({session.policy.facts.label for session in sessions})
        written = self.policy.write(action[0] if single else action)
        return {"action": written, "model": labels[0] if len(labels) == 1 else labels}

    def _begin_missing(self, names: Sequence[str], reset: list[bool]) -> None:
        """Begins the sessions that are not there, if all of their rows begin an episode; or none.

        Raises:
          Refusal: a session to continue is not there, a name is invalid, or there are too many.
        """
        found = zip(names, reset, strict=True)
        missing = [(name, begins) for name, begins in found if self.sessions.find(name) is None]
        if not all(begins for _, begins in missing):
            raise unknown_session()
        begun: list[ServingSession] = []
        try:
            for name, _ in missing:
                begun.append(self.sessions.begin(name, self.policy))
        except Refusal:
            for session in begun:
                self.sessions.end(session)
            raise

    async def _act_in(
        self, sessions: Sequence[ServingSession], obs: Any, mask: np.ndarray | None, reset: list[bool]
    ) -> np.ndarray:
        """Each row by the version of its session; the versions of one request may differ."""
        for session, begins in zip(sessions, reset, strict=True):
            if begins:
                self.sessions.restart(session, self.policy)
        first = [session.begins for session in sessions]
        slots = [session.slot for session in sessions]
        policies = list(dict.fromkeys([session.policy for session in sessions]))
        if len(policies) == 1:
            action = await self.batcher.act(policies[0], obs, slots, first, mask)
        else:
            rows = [[i for i, s in enumerate(sessions) if s.policy is policy] for policy in policies]
            pieces = await asyncio.gather(
                *(
                    self.batcher.act(policy, *rows_of(chosen, obs, slots, first, mask))
                    for policy, chosen in zip(policies, rows, strict=True)
                )
            )
            action = np.empty((len(sessions), *pieces[0].shape[1:]), pieces[0].dtype)
            for chosen, piece in zip(rows, pieces, strict=True):
                action[chosen] = piece
        for session in sessions:
            session.begins = False
        return action

    async def _act_without_session(self, obs: Any, mask: np.ndarray | None, count: int) -> np.ndarray:
        if self.policy.remembers:
            add = '"session": "me", "reset": true'
            raise Refusal(
                400,
                f"`session` is missing: this policy remembers. Add {add} at the start of an episode, "
                "then only the session",
            )
        slots = [self.policy.nobody] * count
        return await self.batcher.act(self.policy, obs, slots, [True] * count, mask)

    def _names(self, given: Any, single: bool, count: int) -> list[str] | None:
        if given is None:
            return None
        if single and isinstance(given, str):
            return [given]
        if single or not isinstance(given, list) or not all(isinstance(name, str) for name in given):
            raise Refusal(400, "`session` must be text, and a list of it for a batch")
        if len(given) != count or len(set(given)) != count:
            raise Refusal(400, f"`session` must have {count} different names, one for each row of `obs`")
        return given

    def _mask(self, given: Any, single: bool, count: int) -> np.ndarray | None:
        size = self.policy.facts.mask_size
        if size is None:
            if given is not None:
                raise Refusal(400, "`action_mask` is given, but this policy takes none")
            return None
        if given is None:
            raise Refusal(400, f"`action_mask` is missing: {size} times true or false for each row")
        mask = _booleans("action_mask", given, (size,) if single else (count, size)).reshape(count, size)
        action = self.policy.facts.spaces["action"]
        components = action["nvec"] if action["type"] == "multi_discrete" else [size]
        starts = np.cumsum([0, *components[:-1]])
        if not np.logical_or.reduceat(mask, starts, axis=1).all():
            component = " of each component" if len(components) > 1 else ""
            raise Refusal(400, f"`action_mask` must allow an action{component} in each row")
        return mask


def _require_keys(content: Mapping[str, Any], known: set[str]) -> None:
    if not content.keys() <= known:
        key = next(key for key in content if key not in known)
        raise Refusal(400, f"`{str(key)[:40]}` is unknown; there are {', '.join(sorted(known))}")


def _booleans(name: str, given: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        found = np.asarray(given)
    except ValueError:
        found = np.zeros(0)
    if found.shape != shape or found.dtype.kind not in "bui" or ((found != 0) & (found != 1)).any():
        raise Refusal(400, f"`{name}` must be true or false in the shape {list(shape)}")
    return found.astype(bool)
