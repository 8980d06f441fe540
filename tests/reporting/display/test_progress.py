"""How far a run is, how long it takes, and its curves as sparklines."""

from __future__ import annotations

from jaxrl.reporting.display.progress import History
from tests.reporting.display.test_display import make_progress


class TestProgress:
    def test_remaining_time_from_the_pace_between_rows(self) -> None:
        progress, now = make_progress(1000, None)
        assert progress.remaining() is None
        for seconds, steps in [(10.0, 100), (20.0, 300)]:
            now[0] = seconds
            progress.update(steps, {})
        # 200 steps in 10 s: 700 more take 35 s. Compiling, before the first row, is no part of the pace.
        assert progress.remaining() == 35.0
        now[0] = 25.0
        assert progress.remaining() == 30.0
        assert progress.fraction() == 0.3

    def test_a_budget_in_seconds(self) -> None:
        # It counts training alone: neither the compilation before it nor an evaluation.
        progress, now = make_progress(None, 60.0)
        now[0] = 15.0
        assert (progress.fraction(), progress.remaining()) == (0.0, 60.0)
        progress.update(100, {"time/budget_seconds": 9.0, "time/seconds": 15.0})
        progress.enter("training")
        now[0] = 21.0
        assert (progress.fraction(), progress.remaining()) == (0.25, 45.0)
        progress.update(200, {"time/budget_seconds": 15.0})
        progress.enter("evaluating")
        now[0] = 30.0
        assert progress.fraction() == 0.25

    def test_the_budget_that_ends_first_counts(self) -> None:
        progress, now = make_progress(1000, 60.0)
        now[0] = 10.0
        progress.update(900, {"time/steps_per_second": 100.0, "time/budget_seconds": 10.0})
        assert progress.remaining() == 1.0
        assert progress.fraction() == 0.9

    def test_no_budget(self) -> None:
        progress, _ = make_progress(None, None)
        progress.update(10, {"time/steps_per_second": 5.0})
        assert progress.fraction() is None
        assert progress.remaining() is None

    def test_rows_of_another_process_carry_their_own_times(self) -> None:
        progress, now = make_progress(1000, None)
        now[0] = 100.0  # the run started at 70, long after the display
        progress.update(100, {"time/seconds": 10.0}, at=80.0)
        progress.update(300, {"time/seconds": 20.0}, at=90.0)
        # The row of 20 s was logged 10 s ago; 200 steps in 10 s, so 700 more take 35 s from that row on.
        assert progress.elapsed() == 30.0
        assert progress.remaining() == 25.0
        progress.finish("stopped", at=90.0)
        assert progress.elapsed() == 20.0
        assert progress.remaining() is None

    def test_a_resumed_run_starts_where_it_was(self) -> None:
        progress, now = make_progress(1000, None)
        progress.start_at(500)
        assert progress.fraction() == 0.5
        now[0] = 4.0
        progress.update(600, {"time/seconds": 64.0})
        now[0] = 5.0
        assert progress.elapsed() == 65.0


class TestHistory:
    def test_sparkline_of_few_points(self) -> None:
        history = History()
        for value in (0.0, 1.0, float("nan"), 2.0):
            history.append(value)
        assert history.sparkline(10, "abc") == "abc"

    def test_sparkline_averages_into_its_width(self) -> None:
        history = History()
        for value in (0.0, 2.0, 4.0, 6.0):
            history.append(value)
        assert history.sparkline(2, "ab") == "ab"

    def test_constant_and_empty(self) -> None:
        history = History()
        assert history.sparkline(5, "ab") == ""
        history.append(3.0)
        history.append(3.0)
        assert history.sparkline(5, "ab") == "aa"

    def test_a_long_run_keeps_its_whole_history(self) -> None:
        history = History()
        for i in range(5000):
            history.append(float(i))
        assert len(history._points) < 512
        assert history.sparkline(5, "abcde") == "abcde"

    def test_marks_stay_between_their_values_while_points_are_merged(self) -> None:
        history = History()
        history.mark()  # before any value: no line
        for i in range(3000):
            if i in (600, 2400):
                history.mark()
            history.append(float(i))
        assert history.sparkline(7, "abcde") == "a┊bcd┊e"
        assert history.sparkline(4, "abcd") == "abcd"  # no room

    def test_a_change_of_stage_is_a_mark_in_every_curve(self) -> None:
        progress, _ = make_progress(1000, None)
        rows = ((1, 1), (1, 1), (2, 1), (2, 1), (2, 2), (2, 2))
        for step, (stage, curriculum) in enumerate(rows):
            row = {"episode/return": float(step), "stage": stage, "curriculum/stage": curriculum}
            progress.update(step, row)
            progress.update(step, {"eval/return": 1.0})
        assert progress.histories["episode/return"].sparkline(20, "abcdef") == "ab┊cd┊ef"
        assert progress.histories["eval/return"].sparkline(20, "a") == "aa┊aa┊aa"
