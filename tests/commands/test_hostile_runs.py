"""Run folders from anyone: each reader ends at once, with one line where it refuses."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jaxrl
from jaxrl.commands import compare, evaluate, export, verify_checkpoint, watch
from jaxrl.config import ConfigError
from jaxrl.envs.bounded_files import MOST_LINES
from jaxrl.main import main as train
from jaxrl.runs import members
from tests.commands.test_fuzz import limited
from tests.comparison.run_folders import write_run

SECONDS = 30
FILES = ("config.json", "metrics.jsonl", "summary.json")
MARKS = (".lock", ".run")


def load(argv: list[str]) -> int:
    try:
        jaxrl.load(argv[1])
    except ConfigError as error:
        return 3 if "\n" in str(error) else 2
    return 0


# Each takes the folder of a run.
READERS: dict[str, Callable[[str], int]] = {
    "evaluate": lambda run: evaluate.main(["jaxrl evaluate", f"--workdir={run}", "--episodes=1"]),
    "export": lambda run: export.main(["jaxrl export", f"--workdir={run}", "--format=numpy"]),
    "watch": lambda run: watch.main(["jaxrl watch", run]),
    "compare": lambda run: compare.main(["jaxrl compare", run, "--resamples=100", "--force"]),
    "verify-checkpoint": lambda run: verify_checkpoint.main(["jaxrl verify-checkpoint", f"--workdir={run}"]),
    "load": lambda run: load(["load", run]),
}


def sparse(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(40 * 2**30)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def device(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "sparse": sparse,
    "pipe": pipe,
    "folder": folder,
    "device": device,
    "brackets": lambda file: file.write_text("[" * 100_000),
    "objects": lambda file: file.write_text('{"a":' * 100_000),
    "null": lambda file: file.write_text("null\n"),
    "list": lambda file: file.write_text("[1, 2]\n"),
    "digits": lambda file: file.write_text("9" * 5_000),
    "no utf-8": lambda file: file.write_bytes(b'{"a": "\xff"}\n'),
    "empty": lambda file: file.write_text(""),
    "empty object": lambda file: file.write_text("{}\n"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ended, without its checkpoints: a reader that wants one says so once all else is read."""
    return write_run(tmp_path_factory.mktemp("saved") / "run", [10.0, 20.0, 30.0])


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "run"))


def problem(name: str, run: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """How a reader ended otherwise than it may; "" if it did not."""
    try:
        with limited(SECONDS):
            code = READERS[name](str(run))
    except BaseException as error:
        capfd.readouterr()
        return f"{name}: {type(error).__name__}: {str(error)[:200]}"
    output, error_text = capfd.readouterr()
    if code not in (0, 2) and not (code == 1 and name == "verify-checkpoint"):
        return f"{name}: ended with {code}"
    if code == 2 and (output or error_text.count("\n") != 1) and name != "load":
        return f"{name}: said {(output + error_text)[:600]!r}"
    if "Traceback" in error_text or len(error_text) > 8_000:
        return f"{name}: said {error_text[-600:]!r}"
    return ""


@pytest.mark.parametrize("file", [*FILES, *MARKS])
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_file_of_a_run_stops_a_reader(
    file: str, damage: str, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (run / file).touch()
    DAMAGES[damage](run / file)
    assert not [found for name in READERS if (found := problem(name, run, capfd))]


def test_a_log_of_too_many_lines_is_refused_before_it_fills_the_memory(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (run / "metrics.jsonl").write_bytes(b"\n" * (MOST_LINES + 1))
    assert READERS["watch"](str(run)) == 0
    assert f"it has more than {MOST_LINES:,} lines" in capfd.readouterr().out
    assert not problem("compare", run, capfd)


def test_a_trainer_waits_for_no_pipe(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in (".lock", ".run", "train.log"):
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)
    with limited(SECONDS):
        assert train(["jaxrl", "--config=ppo", "--config.num_devices=1", f"--workdir={run}"]) == 2
    error = capfd.readouterr().err
    assert error.endswith("cannot be locked: [Errno 22] it is no regular file: " + f"'{run / '.lock'}'\n")


def test_a_best_member_is_inside_of_its_population(tmp_path: Path) -> None:
    (tmp_path / "population" / "members" / "seed_0").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for name in ("../other", str(tmp_path / "other"), "members/../../other", "members"):
        (tmp_path / "population" / "summary.json").write_text(json.dumps({"best_member": name}))
        with pytest.raises(ConfigError, match="name a member"):
            members.with_policy(str(tmp_path / "population"))


VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 10**400, 2**63, 1e308, float("nan"), float("inf"), "", "x" * 300, "\x1b[31m\r\n",
    "/dev/zero", "1e5", [], [1], ["a", {}], {}, {"a": 1},
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value inside of another one."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


def changed(content: Any, rng: random.Random) -> Any:
    """A copy with one value replaced or removed."""
    content = copy.deepcopy(content)
    *way, last = rng.choice(list(places(content)))
    parent = content
    for key in way:
        parent = parent[key]
    if rng.random() < 0.1:
        del parent[last]
    else:
        parent[last] = rng.choice(VALUES)
    return content


def change(run: Path, rng: random.Random) -> str:
    """Changes a value of one of the files; returns which."""
    file = run / rng.choice(FILES)
    if file.suffix == ".jsonl":
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        index = rng.randrange(len(rows))
        rows[index] = changed(rows[index], rng)
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        text = json.dumps(changed(json.loads(file.read_text()), rng))
    file.write_text(text)
    return f"{file.name}: {text[:100_000]}"


def wrong_values(
    saved: Path, place: Path, capfd: pytest.CaptureFixture[str], cases: range, readers: tuple[str, ...]
) -> list[str]:
    failed = []
    for seed in cases:
        run = Path(shutil.copytree(saved, place / f"run{seed}"))
        rng = random.Random(seed)
        before = {name: (run / name).read_text() for name in FILES}
        change(run, rng)
        after = {name: (run / name).read_text() for name in FILES}
        failed += [
            f"{seed}: {found}\n{[a for n in FILES if before[n] != (a := after[n])]}"
            for name in readers
            if (found := problem(name, run, capfd))
        ]
        shutil.rmtree(run)
    return failed


@pytest.mark.slow
def test_values_of_wrong_types_stop_no_reader(
    saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = wrong_values(saved, tmp_path, capfd, range(100), ("watch", "compare"))
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(range(100, 150), marks=pytest.mark.slow),
        pytest.param(range(150, 400), marks=pytest.mark.long),
    ],
    ids=["some", "many"],
)
def test_values_of_wrong_types_stop_none_of_all_readers(
    numbers: range, saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = wrong_values(saved, tmp_path, capfd, numbers, tuple(READERS))
    assert not failed, "\n".join(failed)
