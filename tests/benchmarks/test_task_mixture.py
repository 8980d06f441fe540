"""The table of `benchmarks/task_mixture.py`, by hand."""

from __future__ import annotations

import pytest

from tests.benchmarks.loading import load


def test_parts_count_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = load("task_mixture")
    seconds = {benchmark.MIXTURE: [2e-6, 3e-6]}
    for i, task in enumerate(("a", "b")):
        seconds |= {
            ("share", task): [1e-6, (2 + 4 * i) * 1e-6],
            ("all", task): [1e-6, 1e-6],
            ("padded", task): [1.5e-6, 3e-6],
        }
    benchmark.report(seconds)
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    ratios = {row[0].strip("| *"): float(row[-1].strip(" |")) for row in rows[2:]}
    # A step of a and one of b take 3 + 7 us alone, and two of the mixture 10.
    assert ratios[f"all tasks, each {benchmark.SETTINGS['share']}"] == 1.0
    assert ratios[f"all tasks, each {benchmark.SETTINGS['all']}"] == 0.4
    assert ratios[f"all tasks, each {benchmark.SETTINGS['padded']}"] == 0.9
    assert ratios["mixture"] == 1.0
    assert rows[2][1:4] == ["200,000", "2.00", "3.00"]
