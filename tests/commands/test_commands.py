"""`jaxrl COMMAND`: the list of commands, their help, a wrong name, the version, completion in a shell."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import jaxrl
from jaxrl.commands import COMMANDS, module_of, run
from jaxrl.config.configuration import BUILT_IN
from jaxrl.config.declarations import declared_fields, section_meanings
from jaxrl.envs import suites

ROOT = Path(__file__).parents[2]


def test_every_command_is_listed_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jaxrl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = dict(re.findall(r"^  ([a-z-]+) +(\w.*)$", "\n".join(lines), re.MULTILINE))
    assert tuple(shown) == COMMANDS
    assert len(set(COMMANDS)) == len(COMMANDS)
    assert max(map(len, lines)) <= 80
    modules = {path.stem.replace("_", "-") for path in (ROOT / "jaxrl/commands").glob("[a-z]*.py")}
    # By several commands.
    shared = {"arguments", "command-line", "field-flags", "next-steps", "resumption", "run-arguments"}
    shared |= {"suite-table", "training-arguments"}
    assert modules - shared == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_begins_with_the_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jaxrl", command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"jaxrl {command}")
    assert "python -m" not in text
    assert max(map(len, text.splitlines())) <= 80, "wider than a terminal"


def listed(text: str) -> set[str]:
    """The names at the beginning of lines."""
    return set(re.findall(r"^  ([a-z_0-9.]+)(?= |$)", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("arguments", "algorithms"),
    [
        ([], set(BUILT_IN)),
        (["dqn"], {"dqn"}),
        (["--config=sac_memory"], {"sac"}),
        (["ppo", "--config.algorithm=a2c"], {"a2c"}),
    ],
)
def test_help_of_train_has_the_sections_of_the_config(
    arguments: list[str], algorithms: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["jaxrl", "train", *arguments, "--help"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 110  # Every field takes a thousand.
    assert listed(text) == set(section_meanings()) - set(BUILT_IN) | algorithms
    assert {name for name in declared_fields() if "." not in name} <= set(re.findall(r"\w+", text))


def test_help_of_train_for_a_section_a_field_or_all(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(part: str) -> set[str]:
        assert run(["jaxrl", "train", f"--help={part}"]) == 0
        return listed(capsys.readouterr().out)

    fields = set(declared_fields())
    assert shown("ppo") == {name for name in fields if name.startswith("ppo.")} != set()
    assert shown("env.name") == {"env.name"}
    assert shown("all") == fields
    assert run(["jaxrl", "train", "--help=pppo"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: `--help` (='pppo') must be a section or a field; did you"
    )


def test_docs_are_listed_and_shown_by_any_of_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jaxrl", "docs"]) == 0
    pages = set(re.findall(r"^  ([a-z_/]+)  +\S", capsys.readouterr().out, re.MULTILINE))
    docs = ROOT / "docs"
    there = {path.relative_to(docs).with_suffix("").as_posix() for path in docs.rglob("*.md")}
    assert pages == {name for name in there if not name.startswith("design/")}
    for name, file in (
        ("replay", "replay"),
        ("docs/replay.md#sac", "replay"),
        ("memory", "memory"),  # not the tutorial
        ("tutorials/memory.md", "tutorials/memory"),
        ("stages", "how_to/stages"),
    ):
        assert run(["jaxrl", "docs", name]) == 0
        assert capsys.readouterr().out == (docs / f"{file}.md").read_text()
    assert run(["jaxrl", "docs", "replai"]) == 2
    assert capsys.readouterr().err == "error: `PAGE` (='replai') is no page; did you mean `replay`?\n"


def test_pages_that_messages_name_are_there() -> None:
    named: set[str] = set()
    for folder in ("jaxrl", "envs", "configs"):
        for file in (ROOT / folder).rglob("*.py"):
            named |= set(re.findall(r"\bdocs/(?!benchmark/)[a-z_/]+\.md\b", file.read_text()))  # CleanRL's
    assert "docs/metrics.md" in named
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]


def test_help_may_be_read_in_part() -> None:
    command = f"{shlex.quote(sys.executable)} -u -m jaxrl train --help | head -n 1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("jaxrl train CONFIG")
    assert done.stderr == ""


def test_wrong_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jaxrl", "trian"]) == 2
    assert capsys.readouterr().err == "error: unknown command `trian`; did you mean `train`?\n"
    assert run(["jaxrl", "--debug", "train"]) == 2
    assert capsys.readouterr().err == "error: unknown command `--debug`; a command comes before its flags\n"


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jaxrl", "help", "watch"]) == run(["jaxrl", "watch", "--help"]) == 0
    once, _, again = capsys.readouterr().out.partition("jaxrl watch DIR")[2].partition("jaxrl watch DIR")
    assert once == again
    assert run(["jaxrl", "help"]) == 0
    assert capsys.readouterr().out.startswith("usage: jaxrl COMMAND")


def test_process_of_the_package_is_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "jaxrl", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"jaxrl {jaxrl.__version__}\n")


# What bash does: the words of the line, and the answer of the function that `complete` has registered.
_COMPLETE = r"""
source "$1"
COMP_LINE=$2 COMP_POINT=${#2}
read -ra COMP_WORDS <<<"${2//=/ = }"
[[ $2 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_jaxrl
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def completion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script that bash runs once, in its startup file."""
    script = tmp_path_factory.mktemp("completion") / "jaxrl.bash"
    command = [sys.executable, "-m", "jaxrl", "completion", "bash"]
    with script.open("w") as stream:
        subprocess.run(command, cwd=ROOT, stdout=stream, check=True)
    return script


def completed(script: Path, line: str, folder: Path) -> list[str]:
    """The words that bash offers for the last word of a line."""
    command = ["bash", "-c", _COMPLETE, "bash", str(script), line]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("jaxrl ver", ["verify-data", "verify-checkpoint"]),
        ("jaxrl train ppo_mi", ["ppo_minatar"]),
        ("jaxrl train --config=ppo_mi", ["ppo_minatar"]),  # bash replaces what follows the `=`
        ("jaxrl train ppo --config.ppo.ga", ["--config.ppo.gamma=", "--config.ppo.gae_lambda="]),
        ("jaxrl benchmark --sec", ["--seconds="]),
        ("jaxrl sync --", ["--dry-run", "--debug"]),
        ("jaxrl search --cpus", ["--cpus_per_trial="]),
        ("jaxrl train --pro", ["--process_id="]),
        ("jaxrl doctor --b", ["--bucket="]),
        ("jaxrl evaluate --workdir=jaxrl/tra", ["jaxrl/training"]),
        ("jaxrl completion z", ["zsh"]),
        ("jaxrl train --env=gymnax:CartP", ["CartPole-v1"]),  # and what follows a `:`
        (
            "jaxrl train --env=gymna",
            ["gymnax:" + name for name in sorted(suites.known(suites.suite_of("gymnax")) or ())],
        ),
        ("jaxrl evaluate --environment=jaxrl:ProbeMe", ["ProbeMemory"]),
        ("jaxrl train --config.nonfi", [f"--config.nonfinite={x}" for x in ("halt", "skip", "rollback")]),
        ("jaxrl train --config.nonfinite=ro", ["rollback"]),
        ("jaxrl train --config.normalize.rewards=", ["true", "false"]),
    ],
)
def test_bash_completes(completion: Path, line: str, expected: list[str]) -> None:
    assert completed(completion, line, ROOT) == expected


@pytest.mark.parametrize("flag", ["--config=", ""])
def test_bash_completes_config_files_beside_shipped_names(
    completion: Path, flag: str, tmp_path: Path
) -> None:
    for name in ("ppo_min.yaml", "ppo_min.json", "ppo_min.txt"):
        (tmp_path / name).touch()
    found = completed(completion, f"jaxrl train {flag}ppo_mi", tmp_path)
    assert sorted(found) == ["ppo_min.json", "ppo_min.yaml", "ppo_minatar"]


def test_completion_of_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jaxrl", "completion", "zhs"]) == 2
    assert capsys.readouterr().err == "error: `SHELL` (='zhs') must be one shell; did you mean `zsh`?\n"
    assert run(["jaxrl", "completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out
    assert module_of("completion").main(["jaxrl completion"]) == 2
