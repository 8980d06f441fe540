"""The rows of a population: medians, quartiles and the best over members that train or have ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from jaxrl.reporting.writers import JsonlWriter, MultiWriter
from jaxrl.reporting.writers.population import PopulationRows
from jaxrl.reporting.writers.writer import Writer


class Kept(Writer):
    def __init__(self) -> None:
        self.rows: list[tuple[int, Mapping[str, float]]] = []
        self.resumed: list[int] = []

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self.rows.append((step, scalars))

    def resume_from(self, step: int) -> None:
        self.resumed.append(step)


def training(value: float, pace: float = 100.0) -> dict[str, float]:
    return {"episode/return": value, "loss/value": 2 * value, "time/steps_per_second": pace}


def test_who_has_ended_has_no_speed_and_makes_no_steps() -> None:
    kept = Kept()
    rows = PopulationRows(3, kept)
    for member in range(3):
        rows.of(member).write(10, training(1.0) | {"steps": 10, "time/seconds": 4.0})
    for member in (1, 2):
        rows.leave(member, failed=False)
    rows.of(0).write(20, training(1.0, pace=150.0) | {"steps": 20, "time/seconds": 9.0})
    row = kept.rows[1][1]
    assert (row["time/steps_per_second"], row["steps"], row["time/seconds"]) == (150.0, 20, 9.0)


def test_a_row_comes_once_all_have_written_theirs() -> None:
    kept = Kept()
    rows = PopulationRows(4, kept)
    for member in (2, 0, 3):
        rows.of(member).write(10, training(float(member)))
    assert not kept.rows
    rows.of(1).write(10, training(1.0))
    ((step, row),) = kept.rows
    assert step == 10
    assert row["episode/return"] == 1.5
    assert row["loss/value"] == 3.0
    assert (row["population/return_lower"], row["population/return_upper"]) == (0.75, 2.25)
    assert row["population/return_best"] == 3.0
    assert row["time/steps_per_second"] == 400.0
    assert row["population/training"] == 4


def test_evaluations_make_rows_of_their_own() -> None:
    kept = Kept()
    rows = PopulationRows(2, kept)
    for member, value in ((0, 5.0), (1, 7.0)):
        rows.of(member).write(10, training(1.0))
        rows.of(member).write(10, {"eval/return": value})
        rows.of(member).write(10, {"checkpoint/step": 10})
    assert [row.get("eval/return") for _, row in kept.rows] == [None, 6.0]
    assert kept.rows[1][1]["population/eval_best"] == 7.0


def test_who_has_ended_counts_with_the_last_row_and_who_failed_no_more() -> None:
    kept = Kept()
    rows = PopulationRows(3, kept)
    for member, value in enumerate((1.0, 5.0, 100.0)):
        rows.of(member).write(10, training(value))
    rows.of(0).write(20, training(3.0))
    rows.leave(1, failed=False)
    assert len(kept.rows) == 1
    rows.leave(2, failed=True)  # It was the last that step 20 waited for.
    step, row = kept.rows[1]
    assert step == 20
    assert row["episode/return"] == 4.0  # of 3 and 5
    assert row["population/training"] == 1


def test_what_is_not_finite_is_left_out() -> None:
    kept = Kept()
    rows = PopulationRows(2, kept)
    rows.of(0).write(10, training(math.nan))
    rows.of(1).write(10, training(4.0))
    assert kept.rows[0][1]["episode/return"] == 4.0


def test_a_resumed_population_goes_on_where_the_last_member_does() -> None:
    kept = Kept()
    rows = PopulationRows(2, kept)
    rows.of(0).resume_from(20)
    rows.of(1).resume_from(30)
    rows.of(0).write(30, training(1.0))  # It catches up with a step that has its row.
    assert not kept.rows
    rows.of(0).write(40, training(1.0))
    rows.of(1).write(40, training(3.0))
    assert kept.resumed == [20, 30]
    assert [step for step, _ in kept.rows] == [40]


def test_a_row_has_the_values_of_its_own_step() -> None:
    # The first member is a step ahead when the second one closes the row.
    kept = Kept()
    rows = PopulationRows(2, kept)
    for step, value in ((10, 1.0), (20, 100.0)):
        rows.of(0).write(step, training(value))
    rows.of(1).write(10, training(3.0))
    ((step, row),) = kept.rows
    assert (step, row["episode/return"]) == (10, 2.0)


def test_a_row_that_a_signal_cut_short_is_written_whole_after_the_resume(tmp_path: Path) -> None:
    files = [tmp_path / "0.jsonl", tmp_path / "1.jsonl"]
    shared = tmp_path / "population.jsonl"

    def resumed(population: PopulationRows) -> list[Writer]:
        members = [MultiWriter([JsonlWriter(f), population.of(i, f)]) for i, f in enumerate(files)]
        for member in members:
            member.resume_from(10)
        return members

    with closing(JsonlWriter(shared)) as writer:
        members = resumed(PopulationRows(2, writer, shared))
        for member in members:
            member.write(10, training(1.0))
        # One has evaluated, the other one had no time left; neither has ended for good.
        members[0].write(10, {"eval/return": 4.0})
        for member in members:
            member.close()
    before = shared.read_text()
    assert before.count("\n") == 1
    kept = Kept()
    with closing(JsonlWriter(shared)) as writer:
        members = resumed(PopulationRows(2, MultiWriter([writer, kept]), shared))
        members[0].write(20, training(5.0))
        members[1].write(10, {"eval/return": 8.0})
        members[1].write(20, training(7.0))
        for member in members:
            member.close()
    assert shared.read_text().startswith(before)
    (at, evaluation), (later, row) = kept.rows
    assert (at, evaluation["eval/return"], evaluation["population/training"]) == (10, 6.0, 2)
    assert (later, row["episode/return"]) == (20, 6.0)


def test_a_member_that_had_ended_counts_after_a_resume(tmp_path: Path) -> None:
    file = tmp_path / "0.jsonl"
    with closing(JsonlWriter(file)) as writer:
        writer.write(10, training(2.0))
    kept = Kept()
    rows = PopulationRows(2, kept)
    rows.of(0, file).resume_from(10)
    rows.leave(0, failed=False)
    rows.of(1).resume_from(10)
    rows.of(1).write(20, training(4.0))
    assert kept.rows[0][1]["episode/return"] == 3.0
