"""Puts bugs into a copy of the tree, one at a time, and runs the tests of their area: `make test-mutants`.

`python .ci/mutants.py [NAME | ROOM]...`: mutants of `tests/mutants.jsonl` by name, or all of a room and of
those inside it, such as `experience/replay` or `envs`; without one, all of them. Each line of the list holds

    name, file, old, new    the bug: `old` stands once in `file` and becomes `new`
    tests                   files or ids of tests, at least one of which fails then
    why                     what goes wrong with it
    survives                the reason, only if no test can find it

Long tests, which run weekly, are left out. The others first run without a bug, so that what fails anyway is
not counted as a find. The exit code is 1 if a mutant survives without a reason, or is found in spite of one,
2 if the list does not fit the tree.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

LIST = "tests/mutants.jsonl"
LIMIT = 600  # seconds of a mutant's tests
_NOT_COPIED = {".git", ".venv", "build", "dist", "runs", "site"}  # at the top
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?::.+?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """A line of the list."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str
    survives: str = ""

    @property
    def room(self) -> str:
        """The folder of the file, below `jaxrl/` if it lies there."""
        return PurePosixPath(self.file).parent.as_posix().removeprefix("jaxrl/")

    def mutated(self, root: Path) -> str:
        """The text of its file with the bug; ValueError if the old text is not in it, or more than once."""
        path = root / self.file
        text = path.read_text() if path.is_file() else ""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.file} holds its old text {count} times, not once")
        return text.replace(self.old, self.new)


def read(path: Path) -> list[Mutant]:
    """All mutants of a list, in its order."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    mutants = [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in found]
    if double := {x.name for x in mutants if sum(x.name == y.name for y in mutants) > 1}:
        raise ValueError(f"{path}: two mutants are called {', '.join(sorted(double))}")
    return mutants


def select(mutants: Sequence[Mutant], names: Sequence[str]) -> list[Mutant]:
    """Those of the names and rooms; ValueError for one that selects none."""
    chosen = {name: [x for x in mutants if x.name == name or _inside(x.room, name)] for name in names}
    if unknown := [name for name, found in chosen.items() if not found]:
        raise ValueError(f"no mutant and no room of {LIST} is called {', '.join(unknown)}")
    wanted = {x.name for found in chosen.values() for x in found}
    return [x for x in mutants if not names or x.name in wanted]


def _inside(room: str, name: str) -> bool:
    return f"{room}/".startswith(f"{name.strip('/')}/")


@dataclass(frozen=True)
class Outcome:
    """What the tests said: those that failed, that they did not end, or that all of them are skipped here."""

    failed: tuple[str, ...] = ()
    is_hung: bool = False
    is_skipped: bool = False

    def suits(self, mutant: Mutant) -> bool:
        """True if tests fail, unless no test can; what takes too long proves nothing."""
        return self.is_skipped or (not self.is_hung and bool(self.failed) != bool(mutant.survives))

    def text(self) -> str:
        if self.is_skipped:
            return "NOT TRIED: its tests are skipped here"
        if self.is_hung:
            return f"NO END in {LIMIT} s"
        return self.failed[0] if self.failed else "SURVIVED"


def run_tests(root: Path, tests: Sequence[str], *options: str, limit: float | None = None) -> Outcome:
    """Runs tests of the tree in `root`; ValueError with pytest's output if they could not be run."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-m", "not long", "--no-header"]
    process = subprocess.Popen(
        [*command, "--tb=no", *options, *tests],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return Outcome(is_hung=True)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that the tests started
            process.communicate()
    failed = tuple(_FAILED.findall(output))
    is_skipped = " skipped" in output and " passed" not in output and not failed
    known = {0, 1, 5} if is_skipped else {0, 1}  # 5: no test was collected
    if process.returncode not in known or (process.returncode == 1) != bool(failed):
        raise ValueError(f"pytest {' '.join(tests)}: exit code {process.returncode}\n{output[-3000:]}")
    return Outcome(failed, is_skipped=is_skipped)


@contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """A copy of the tree in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = Path(folder, "tree").resolve()
        caches = shutil.ignore_patterns("__pycache__", ".*_cache")

        def ignored(place: str, names: list[str]) -> set[str]:
            return caches(place, names) | (_NOT_COPIED if Path(place) == tree else set())

        shutil.copytree(tree, root, symlinks=True, ignore=ignored)
        yield root


def _write(path: Path, text: str) -> None:
    """Without the compiled form of the text before: Python knows it by size and whole seconds."""
    path.write_text(text)
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()


def try_mutant(root: Path, mutant: Mutant) -> Outcome:
    """The outcome of its tests with the bug in the tree."""
    path = root / mutant.file
    before = path.read_text()
    _write(path, mutant.mutated(root))
    try:
        return run_tests(root, mutant.tests, "-x", limit=LIMIT)
    except ValueError as error:
        raise ValueError(f"{mutant.name}: {error}") from None
    finally:
        _write(path, before)


def test(tree: Path, names: Sequence[str]) -> int:
    """Prints a line for each mutant as it is tried; returns the exit code."""
    mutants = select(read(tree / LIST), names)
    for mutant in mutants:
        mutant.mutated(tree)
    wrong = []
    with copied(tree) as root:
        began = time.monotonic()
        before = run_tests(root, sorted({test for x in mutants for test in x.tests})).failed
        print(
            f"{'without a bug':24} {'':28} {time.monotonic() - began:4.0f} s  {len(before)} fail", flush=True
        )
        for mutant in mutants:
            began = time.monotonic()
            if red := [x for x in before if x.startswith(mutant.tests)]:
                is_wrong, said = True, f"NOT TRIED: {red[0]} fails without it"
            else:
                outcome = try_mutant(root, mutant)
                is_wrong = not outcome.suits(mutant)
                said = outcome.text() + (f": {mutant.survives}" if mutant.survives else "")
            wrong += [mutant.name] if is_wrong else []
            print(f"{mutant.name:24} {mutant.room:28} {time.monotonic() - began:4.0f} s  {said}", flush=True)
    print(f"{len(mutants)} mutants, {len(wrong)} not as they should be: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(test(Path(__file__).parents[1], sys.argv[1:]))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
