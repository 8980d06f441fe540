"""Trainers of equal configurations share their programs, within a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import compiled_trainers


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> Iterator[None]:
    with compiled_trainers.compiled_once():
        yield
