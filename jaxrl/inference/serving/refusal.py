"""The answer to a refused request."""

from __future__ import annotations


class Refusal(Exception):
    """A refused request: an HTTP status and one line."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
