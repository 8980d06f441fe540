from __future__ import annotations

import pytest

from tests.compiled_programs import start, tiny_program
from tests.experience.host.host_env import record
from tests.experience.host.playing import T


@pytest.fixture(scope="module")
def device():
    """(program, initial state, what its environments do in three rollouts)."""
    program = tiny_program()
    state = start(program)
    return program, state, record(program, state, 3 * T)
