"""The answer to a request that is not answered as asked."""

from __future__ import annotations


class Refusal(Exception):
    """A request that is not answered as asked: an HTTP status and one line."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
