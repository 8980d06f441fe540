"""The log file of a run: what goes into it, and disks that do not take it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from jaxrl.reporting.logs import log_level, log_to
from tests.runs.checkpoint.checkpoints import file_size_limit


def test_log_file_gets_info_of_the_package_and_warnings_of_everyone(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with log_to(path):
        logging.getLogger("jaxrl.training.trainer").info("restored step 5")
        logging.getLogger("jax").info("chatter")
        logging.getLogger("orbax").warning("slow disk")
    logging.getLogger("jaxrl.training.trainer").warning("after the run")
    lines = path.read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [
        "INFO jaxrl.training.trainer: restored step 5",
        "WARNING orbax: slow disk",
    ]


def test_absl_does_not_write_past_the_display(tmp_path: Path) -> None:
    from absl import logging as absl_logging

    handler = absl_logging.get_absl_handler()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with log_to(tmp_path / "train.log"):
            assert handler not in root.handlers
        assert handler in root.handlers
    finally:
        root.removeHandler(handler)


def test_a_log_on_a_full_disk_loses_records_without_a_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("jaxrl.training.trainer")
    with log_to(tmp_path / "train.log"), file_size_limit(100):
        log.info("first")
        for _ in range(3):
            log.info("x" * 200)
    assert "first" in (tmp_path / "train.log").read_text()
    assert capfd.readouterr() == ("", "")


def test_a_log_that_cannot_be_written_is_only_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with log_to(tmp_path / "absent" / "train.log"):
        pass
    assert "there will be no log file" in caplog.text


def test_nothing_is_logged_past_the_display(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A library that logs before logging is set up makes `logging` add a handler to standard error; what it
    # wrote there moved the cursor of the live display.
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    try:
        with log_to(tmp_path / "train.log"):
            logging.getLogger("jaxrl.test").info("saved")
        assert capsys.readouterr().err == ""
        assert "saved" in (tmp_path / "train.log").read_text()
    finally:
        logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize(
    ("level", "expected"),
    [("debug", ["one", "two", "three", "four"]), ("info", ["two", "four"]), ("error", ["four"])],
)
def test_level_decides_which_records_there_are(level: str, expected: list[str], tmp_path: Path) -> None:
    before = logging.getLogger("jax").level
    token = log_level.set(level)
    try:
        with log_to(tmp_path / "train.log"):
            logging.getLogger("jaxrl.x").debug("one")
            logging.getLogger("jaxrl.x").info("two")
            logging.getLogger("jax.x").debug("three")
            logging.getLogger("jax.x").error("four")
    finally:
        log_level.reset(token)
    assert [line.split()[-1] for line in (tmp_path / "train.log").read_text().splitlines()] == expected
    assert logging.getLogger("jax").level == before
