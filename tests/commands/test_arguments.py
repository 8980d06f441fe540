"""Arguments of commands: one declaration gives the parser, the help and the words of completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxrl.commands import COMMANDS, arguments_of, module_of, run
from jaxrl.commands.arguments import Argument, CommandArguments, flag, group, help_text
from jaxrl.config import ConfigError
from tests.commands.refusals import refused

ROOT = Path(__file__).parents[2]


class Example(CommandArguments):
    run = Argument("RUN", "a folder")
    seconds: float = flag(
        "--seconds=S", "how long (default: {default}); `--seconds=1` is short", 20.0, (0.5, None)
    )
    steps: int | None = flag("--steps=N", within=(1, 9))
    words: dict[str, object] = group(
        Argument("--name=TEXT", "a custom word, which may be as long as a line of the help text is", str),
        Argument("--the-share=X", kind=float, default=0.5),
    )
    everything: bool = flag("--all", "everything")
    field = Argument("--config.FIELD=VALUE", "changes a field")


def test_the_help_of_an_example() -> None:
    introduction = "jaxrl example RUN: shows the help.\n\nMore about it.\n"
    assert help_text(introduction, Example.arguments()) == (
        "jaxrl example RUN: shows the help.\n"
        "\n"
        "  RUN                    a folder\n"
        "  --seconds=S            how long (default: 20); `--seconds=1` is short\n"
        "  --name=TEXT            a custom word, which may be as long as a line of the\n"
        "                         help text is\n"
        "  --all                  everything\n"
        "  --config.FIELD=VALUE   changes a field\n"
        "  --debug                full tracebacks instead of one line for bad input\n"
        "\n"
        "More about it.\n"
    )


def test_values_by_name_and_what_is_left() -> None:
    argv = ["jaxrl", "runs/a", "--all", "--steps=3", "--config.seed=1"]
    flags, left = Example.parse(argv, known_only=True)
    words = {"name": None, "the-share": 0.5}
    assert vars(flags) == {"seconds": 20.0, "steps": 3, "words": words, "everything": True, "debug": False}
    assert left == ["runs/a", "--config.seed=1"]


def test_values_as_their_own_words_and_words_that_are_no_flags() -> None:
    argv = ["jaxrl", "--seconds", "1e3", "--all=false", "--the_share", "-1", "-", "-5", "--", "--steps"]
    flags, left = Example.parse(argv, positional=True)
    assert (flags.seconds, flags.everything, flags.words["the-share"]) == (1000.0, False, -1.0)
    assert left == ["-", "-5", "--steps"]
    with pytest.raises(ConfigError, match="^`--name` needs a value: --name=TEXT$"):
        Example.parse(["jaxrl", "--name", "--all"])


def test_home_folders_that_shells_leave_in_flags(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    argv = ["jaxrl", "--name=~/a", "~", "~/b", "c/~", "~d", "--config.init_from=~/e", "--config.notes=a ~"]
    flags, left = Example.parse(argv, known_only=True)
    assert flags.words["name"] == f"{tmp_path}/a"
    expected = (tmp_path, f"{tmp_path}/b", "c/~", "~d", f"--config.init_from={tmp_path}/e")
    assert left == [*map(str, expected), "--config.notes=a ~"]


def test_words_of_completion() -> None:
    words = ["", "--seconds=", "--steps=", "--name=", "--the-share=", "--all", "", "--debug"]
    assert [x.word for x in Example.arguments()] == words


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--steps=10", r"^`--steps` \(=10\) must lie between 1 and 9$"),
        ("--steps=", r"^`--steps` \(=''\) must be an integer$"),
        ("--seconds=0.1", r"^`--seconds` \(=0.1\) must be at least 0.5$"),
        ("--seconds=soon", r"^`--seconds` \(='soon'\) must be a finite number$"),
        ("--all=maybe", r"^`--all` \(='maybe'\) must be true or false$"),
        ("--name", "^`--name` needs a value: --name=TEXT$"),
        ("--name=", "^`--name=` is empty; is a variable of the shell not set.$"),
        ("-n", "^unknown flag `-n`; "),
        ("", "^an argument is empty; is a variable of the shell not set"),
        ("--seconds=nan", "finite"),
        ("--config.seed=1", "config.seed"),
        ("runs/a", "`runs/a` is no flag; flags start with --"),
    ],
)
def test_what_is_refused(argument: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Example.parse(["jaxrl", argument])


@pytest.mark.parametrize("command", COMMANDS)
def test_each_flag_is_declared_once(command: str) -> None:
    module = module_of(command)
    words = [argument.word for argument in arguments_of(command) if argument.word]
    assert len(words) == len(set(words))
    assert not [line for line in str(module.__doc__).splitlines() if line.startswith("  --")]


def test_no_help_imports_jax() -> None:
    code = (
        "import sys; from jaxrl.commands import COMMANDS, run\n"
        "assert not any(run(['jaxrl', command, '--help']) for command in COMMANDS)\n"
        "assert 'jax' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "flags", "rule"),
    [
        ("evaluate", ["--env=CartPole-v1"], "unknown flag `--env`; here it is `--environment`"),
        ("verify-checkpoint", ["--checkpoint=5"], "unknown flag `--checkpoint`; here it is `--step`"),
        ("search", ["ppo", "--optimizer", "optuna"], "unknown flag `--optimizer`; here it is `--method`"),
        (
            "watch",
            ["--intervall=1", "--foo"],
            "unknown flags: `--intervall` (did you mean `--interval`?), `--foo` (",
        ),
    ],
)
def test_unknown_flags_are_answered_with_those_of_the_command(
    command: str, flags: list[str], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, command, *flags).startswith(f"error: {rule}")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_output_whose_reader_has_gone_is_no_traceback(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert run(["jaxrl", *arguments]) == 0
    assert capfd.readouterr().err == ""
