"""Records name the host and the command that they come from."""

from __future__ import annotations

import shlex
import socket
import sys

import pytest

from jaxrl.runs.commits import origin


def test_host_and_command_as_a_shell_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["python", "-m", "jaxrl", "train", "--config.notes=two words; $HOME"]
    monkeypatch.setattr(sys, "orig_argv", command)
    found = origin()
    assert found["host"] == socket.gethostname()
    assert shlex.split(found["command"]) == command


def test_a_long_command_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["x" * 1_000_000])
    assert len(origin()["command"]) == 4_000
