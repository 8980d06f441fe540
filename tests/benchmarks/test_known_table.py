"""docs/results.md has the figures of the table of known environments."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from jaxrl.config.selection import (
    KnownEnvironment,
    MeasuredReturn,
    PublishedReturn,
    known_environments,
)

ROOT = Path(__file__).parents[2]


def test_the_page_has_todays_figures() -> None:
    table = runpy.run_path(str(ROOT / "benchmarks/known_table.py"))["table"]()
    assert len(table.splitlines()) > 20
    assert table in (ROOT / "docs/results.md").read_text()


MEASURED = [known for known in known_environments() if known.measured]


@pytest.mark.parametrize("known", MEASURED, ids=lambda known: known.names[0])
def test_a_measured_environment_is_no_family(known: KnownEnvironment) -> None:
    assert len(known.names) == 1
    assert "*" not in known.names[0]


def test_a_figure_says_of_what_it_is() -> None:
    measured = MeasuredReturn("9.1", 1.0, 1, "sampled actions")
    assert str(measured) == "9.1 after 1.0 M steps, sampled actions (1 seed)"
    assert str(MeasuredReturn("0 to 3", 0.25, 2)) == "0 to 3 after 0.2 M steps (2 seeds)"
    parts = MeasuredReturn("9.1", 1.0, 2, "sampled actions", arguments="(observation='parts')")
    assert str(parts) == "9.1 after 1.0 M steps, sampled actions, with observation='parts' (2 seeds)"
    assert str(PublishedReturn("10.3", "who", 1.0)) == "10.3 after 1.0 M steps (who)"
    assert str(PublishedReturn("28", "who")) == "28 (who)"
