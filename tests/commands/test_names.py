"""Names from anyone: long ones, patterns, escape sequences and no UTF-8 end in one printable line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxrl import commands
from jaxrl.commands import compare, evaluate, verify_checkpoint, watch
from jaxrl.config import text
from jaxrl.main import main as train
from tests.comparison.run_folders import write_run
from tests.inference.runs import save_run

LONG = "a" * 300
ENDLESS = "b" * 200_000
ESCAPES = "\x1b[31mred\x1b]0;title\x07\u202e"
ODD = (ESCAPES, "$\\frac{", "[x]: http:", "![a](b)<b>", "# a\nb|`c`", os.fsdecode(b"\xff\xfe"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "compare **/",
        "compare a**/b",
        "watch **",
        f"compare {LONG}",
        f"watch {LONG}",
        f"dashboard {LONG}",
        f"pipeline {LONG}",
        f"pipeline cartpole --only={LONG}",
        f"profile-summary {LONG}",
        f"evaluate --workdir={LONG}",
        f"evaluate --workdir=. --suite={LONG}",
        f"export --workdir={LONG} --format=numpy",
        f"verify-checkpoint --workdir={LONG}",
        f"verify-data --data={LONG}",
        f"play --levels={LONG}",
        f"play --replay={LONG}",
        f"train ppo --workdir={LONG}",
        f"train {LONG}",
        f"train --resume={LONG}",
        f"search ppo --space={LONG}",
        f"convert --input={LONG}.npz --workdir=x ppo",
        f"{ENDLESS}",
        f"train ppo --{ENDLESS}=3",
        f"train ppo --config.{ENDLESS}=3",
        f"train ppo --config.env.name={ENDLESS}",
        f"train ppo --config.algorithm={ENDLESS}",
        f"train {ENDLESS}",
        f"compare {ENDLESS}",
        f"evaluate --{ENDLESS}",
        f"tournament random {ENDLESS} --game=jaxrl:TicTacToe",
        f"tournament random {ESCAPES} --game=jaxrl:TicTacToe",
        f"play {LONG}",
        f"watch {ENDLESS}",
        f"launch {ENDLESS}",
        f"completion {ENDLESS}",
        f"environments {ENDLESS}",
        f"evaluate --workdir={ESCAPES}",
        f"compare {ESCAPES}",
        f"dashboard {ESCAPES}",
        f"pipeline {ESCAPES}",
        f"{ESCAPES}",
        "train ppo --config.notes=\udcff",
        "train --config=\udcff",
        "evaluate --workdir=\udcff",
        "compare \udcff",
        "dashboard \udcff",
        "pipeline \udcff",
        "search ppo --space=\udcff",
        "launch \udcff",
        "\udcff",
    ],
    ids=lambda arguments: ascii(arguments)[:40],
)
def test_a_name_that_is_none_is_one_line(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.run(["jaxrl", *arguments.split(" ")]) == 2
    output, error = capfd.readouterr()
    assert output == ""
    assert error.startswith("error: ")
    assert error.removesuffix("\n").isprintable()
    assert len(error) < 2_000
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("locale", "end"),
    [({}, b"UTF-8"), ({"LC_ALL": "C", "PYTHONUTF8": "0"}, b"ASCII; set PYTHONUTF8=1 for UTF-8")],
)
def test_a_flag_that_is_no_text_is_one_line_from_the_shell(locale: dict[str, str], end: bytes) -> None:
    command = [os.fsencode(sys.executable), b"-m", b"jaxrl", b"train", b"ppo", b"--config.notes=\xff"]
    done = subprocess.run(command, env=os.environ | locale, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"error: the argument '--config.notes=\\udcff' is no " + end + b"\n"


@pytest.mark.slow
def test_names_of_run_folders_reach_neither_terminal_nor_reports_raw(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ODD:
        for seed in (0, 1):
            write_run(tmp_path / name / str(seed), [1.0, 2.0], seed)
        write_run(tmp_path / f"{name} 2" / "0", [1.0, 2.0], env="gymnax:Acrobot-v1")
    report = tmp_path / "report"
    flags = ["--resamples=100", "--force", f"--output={report}"]
    assert compare.main(["jaxrl compare", str(tmp_path), *flags]) == 0
    assert watch.main(["jaxrl watch", str(tmp_path)]) == 0
    # As an argument too; names that cannot be printed otherwise are refused.
    place = tmp_path / ESCAPES
    save_run(place / "saved")
    assert verify_checkpoint.main(["jaxrl verify-checkpoint", f"--workdir={place}/saved"]) == 1
    assert evaluate.main(["jaxrl evaluate", f"--workdir={place}/saved", "--episodes=1"]) == 0
    assert train(["jaxrl", f"--resume={place}"]) == 2
    output, error = capfd.readouterr()
    for line in (output + error).split("\n"):
        assert line.isprintable(), line
    for file in ("report.md", "report.html"):
        content = (report / file).read_text()
        assert all(line.isprintable() for line in content.split("\n"))
        assert "<b>" not in content.partition("<style")[0]
    marked = (report / "report.md").read_text()
    for raw in ("](b)", "[x]: ", "|`c`", "$\\frac"):
        assert raw not in marked.replace("![", "")


def test_text_that_anyone_may_have_written_can_be_shown() -> None:
    assert text.printable("a é\n\x1b[0m\r\udcff\u202e\xa0") == "a é\n\\x1b[0m\\r\\udcff\\u202e\\xa0"
    assert text.printable("é█", "latin-1") == "é?"
    line = text.one_line("first\n second " + "x" * 5_000 + " last")
    assert line.startswith("first second xxx")
    assert line.endswith("xxx last")
    assert len(line) == text.LONGEST_LINE + len(" ... ")
