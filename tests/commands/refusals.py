"""What every command owes to bad input: one line."""

from __future__ import annotations

import pytest

from jaxrl import commands


def refused(capture: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    """Calls `jaxrl WORDS`, which refuses: the one line on stderr; nothing else is printed."""
    assert commands.run(["jaxrl", *words]) == code
    output, error = capture.readouterr()
    assert output == ""
    assert error.startswith("error: "), error
    assert error.count("\n") == 1, error
    return error
