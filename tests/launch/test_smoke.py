"""The smoke set of `.ci/smoke.py`: whom it chooses, what it prints, and that its checks can fail."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
VERSIONS = [(3, 11, 7), (3, 12, 1), (3, 13, 0), (3, 14, 0)]


@pytest.fixture
def smoke(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    monkeypatch.chdir(ROOT)
    return importlib.import_module("smoke")


@pytest.mark.parametrize(
    ("here", "there", "chosen"),
    [
        ((3, 11, 7), VERSIONS, (3, 14, 0)),
        # Newer ones have this one's lock.
        ((3, 12, 1), VERSIONS, (3, 11, 7)),
        ((3, 12, 1), VERSIONS[1:], (3, 14, 0)),
        ((3, 13, 2), VERSIONS[2:3], None),
        ((3, 11, 7), [], None),
    ],
)
def test_the_other_python_has_the_other_lock_if_there_is_one(
    smoke: ModuleType, here: tuple[int, ...], there: list[tuple[int, ...]], chosen: tuple[int, ...] | None
) -> None:
    pythons = [smoke.Python(version, f"python{version[1]}") for version in there]
    found = smoke.another(smoke.Python(here, "python3"), pythons)
    assert (found and found.version) == chosen


def test_without_another_python_it_says_so(
    smoke: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(smoke, "found", list)
    assert smoke.main([]) == 0
    said = capsys.readouterr().out
    assert re.fullmatch(r"smoke: not run: no supported Python but Python [\d.]+ is on PATH.*\n", said)
    assert "passed" not in said


def test_all_checks_run_and_one_that_fails_shows_its_last_words(
    smoke: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def check(name: str, error: Exception | None = None) -> object:
        def attempt() -> None:
            ran.append(name)
            if error:
                raise error

        return smoke.Check(name, attempt)

    words = "\n".join(f"line {number}" for number in range(100))
    failure = smoke.smoke_checks.Failed(words)
    groups = [[check("first"), check("second", failure), check("third")], [check("fourth", KeyError("x"))]]
    assert smoke.run(groups) == 1
    assert sorted(ran) == ["first", "fourth", "second", "third"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "2 passed, 2 failed"
    assert "    | line 99" in lines
    assert "    | line 0" not in lines
    assert sum(line.startswith("FAILED") for line in lines) == 2
    assert "  failed: second" in lines

    assert smoke.run([[check("first")]]) == 0
    assert capsys.readouterr().out.endswith("\n1 passed, 0 failed\n")


def test_every_algorithm_has_a_check(smoke: ModuleType) -> None:
    from jaxrl.config.configuration import BUILT_IN

    stack = smoke.Stack("Python 3.13.0", "python3", ROOT)
    names = " ".join(check.name for group in smoke.smoke_checks.groups(stack, None) for check in group)
    for algorithm in BUILT_IN:
        assert re.search(rf"\b{algorithm}\b", names), algorithm


@pytest.fixture
def stack(smoke: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """A stack whose `jaxrl` is a program of a few lines."""
    (tmp_path / "jaxrl").mkdir()
    monkeypatch.setenv("PYTHONPATH", "/nowhere")  # of a caller; not for the stack

    def made(program: str) -> object:
        (tmp_path / "jaxrl" / "__main__.py").write_text(program)
        return smoke.Stack("stand-in", sys.executable, tmp_path, str(tmp_path))

    return made


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("print('torn'); raise SystemExit(3)", "ended with 3"),
        ("print('no end')", "`done: ` is not in what it said"),
        ("print('done: all steps')", "losses of runs/x: {}"),
        ("LOSS = float('nan')", "losses of runs/x: {'loss/policy': nan}"),
        ("LOSS = 0.5", ""),
    ],
)
def test_a_run_that_ends_without_learning_fails(
    smoke: ModuleType, stack: Callable[[str], object], tmp_path: Path, program: str, words: str
) -> None:
    folder = tmp_path / "runs/x"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1}) + "\n")
    if "LOSS" in program:
        program += "\nimport json\nrow = json.dumps({'loss/policy': LOSS})"
        program += "\nopen('runs/x/metrics.jsonl', 'w').write(row)\nprint('done: ')"
    attempt = stack(program)
    if not words:
        attempt.train("x", ["ppo"], [])
        return
    with pytest.raises(smoke.smoke_checks.Failed, match=re.escape(words)):
        attempt.train("x", ["ppo"], [])


def test_a_command_that_hangs_is_ended(
    smoke: ModuleType, stack: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoke.smoke_checks, "_LIMIT", 0.2)
    with pytest.raises(smoke.smoke_checks.Failed, match=r"jaxrl evaluate: ended after 0.2 s$"):
        stack("import time; time.sleep(600)").jaxrl("evaluate")
