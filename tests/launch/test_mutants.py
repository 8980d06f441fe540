"""`.ci/mutants.py`: the list of bugs fits the tree, and a tree of two lines shows what becomes of each."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ADD = {"file": "room/runs/sums.py", "old": "x + y", "tests": ["tests/test_sums.py"], "why": "sums are wrong"}


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    return importlib.import_module("mutants")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A function, and a test that knows no negative numbers."""
    (tmp_path / "room/runs").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "room/runs/sums.py").write_text("def add(x, y):\n    return x + y\n")
    test = "from room.runs.sums import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
    (tmp_path / "tests/test_sums.py").write_text(test)
    return tmp_path


def write(tree: Path, *entries: dict[str, Any]) -> None:
    (tree / "tests/mutants.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))


@functools.cache
def functions_of(path: Path) -> set[str]:
    return set(re.findall(r"^ *(?:async )?def (\w+)", path.read_text(), re.MULTILINE))


def test_the_list_fits_the_tree(mutants: ModuleType) -> None:
    """Where this fails, code or a test has moved: keep the bug, and change the text or the test's name."""
    for mutant in mutants.read(ROOT / mutants.LIST):
        ast.parse(mutant.mutated(ROOT))
        assert mutant.new != mutant.old
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            file, *names = test.partition("[")[0].split("::")  # a file, a class, a function
            assert not names or names[-1] in functions_of(ROOT / file), f"{mutant.name}: {test}"


@pytest.mark.slow
def test_a_test_that_fails_anyway_finds_nothing(
    mutants: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "tests/test_sums.py").write_text("def test_red():\n    raise ValueError('a - b')\n")
    write(tree, {"name": "found", "new": "x - y", **ADD})
    assert mutants.test(tree, []) == 1
    assert "NOT TRIED: tests/test_sums.py::test_red fails without it" in capsys.readouterr().out


@pytest.mark.parametrize(("source", "count"), [("return x - y", 0), ("return x + y + (x + y)", 2), (None, 0)])
def test_a_text_that_is_not_there_once_is_refused(
    mutants: ModuleType, tree: Path, source: str | None, count: int
) -> None:
    write(tree, {"name": "sum_sign", "new": "x - y", **ADD})
    if source is None:
        (tree / "room/runs/sums.py").unlink()
    else:
        (tree / "room/runs/sums.py").write_text(source)
    message = rf"^sum_sign: room/runs/sums.py holds its old text {count} times, not once$"
    with pytest.raises(ValueError, match=message):
        mutants.test(tree, [])


def test_mutants_are_chosen_by_name_and_by_room(mutants: ModuleType, tree: Path) -> None:
    files = {
        "a": "jaxrl/runs/x.py",
        "b": "jaxrl/runs/storage/x.py",
        "c": "jaxrl/runs_of/x.py",
        "d": "envs/x.py",
    }
    write(tree, *({"name": name, "new": "y", **ADD, "file": file} for name, file in files.items()))
    listed = mutants.read(tree / mutants.LIST)
    for chosen, expected in {"runs": "ab", "runs/storage": "b", "envs/": "d", "c": "c"}.items():
        assert "".join(x.name for x in mutants.select(listed, [chosen])) == expected
    assert mutants.select(listed, ["d", "a"]) == [listed[0], listed[3]]
    assert mutants.select(listed, []) == listed
    with pytest.raises(ValueError, match=r"no mutant and no room of tests/mutants.jsonl is called networks"):
        mutants.select(listed, ["a", "networks"])
    write(tree, *({"name": "a", "new": "y", **ADD} for _ in range(2)))
    with pytest.raises(ValueError, match="two mutants are called a$"):
        mutants.read(tree / mutants.LIST)
