"""Files of levels, suites, spaces and trials from anyone: read, or refused by one line of the right kind.

Each case is an honest file with something done to it, the same for the same number.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import jaxrl
from jaxrl.commands.pipeline import command_flags
from jaxrl.config import ConfigError
from jaxrl.envs.native.platformer.level_files import DatasetError, read_level
from jaxrl.evaluation.suites import definition
from jaxrl.pipeline.definition import read as read_pipeline
from jaxrl.search.space import Space
from jaxrl.search.trials import TrialRecords
from tests.commands.test_fuzz import limited
from tests.commands.test_hostile_runs import DAMAGES, VALUES, changed

CASES, FEW, SECONDS = 300, 60, 20

LEVEL = {
    "rows": ["#######", "#S...K#", "#..x..#", "#....E#", "#######"],
    "category": "simple",
    "seed": 3,
    "solution": "2222",
}
SUITE = {
    "name": "rooms",
    "modes": ["greedy"],
    "seed": 1,
    "episodes": 10,
    "categories": {
        "small": ["gymnax:CartPole-v1", {"env": "jaxrl:ProbeMemory(delay=3)", "wrappers": [], "steps": 10.0}],
        "large": [{"env": "gymnax:Catch-bsuite", "success": "return >= 1", "episodes": 5}],
    },
}
SPACE = {
    "ppo.learning_rate": {"log": [1e-5, 1e-2], "points": 4},
    "ppo.num_epochs": {"int": [1, 8]},
    "network.hidden_sizes": {"choice": [[64], [64, 64]]},
    "env.name(delay)": {"choice": [3, 5]},
}
PIPELINE = {
    "name": "mine",
    "search": {"enabled": True, "space": {"ppo.gamma": {"uniform": [0.9, 1.0]}}, "trials": 2, "verify": 0},
    "training": {
        "config": "ppo",
        "steps": 1e4,
        "minutes": 3,
        "network": {"hidden_sizes": [8]},
        "quick": False,
    },
    "evaluate": {"episodes": 8, "suites": ["cartpole"], "seed": 1},
    "visualize": {"seeds": [0, 1]},
    "deploy": {"enabled": True, "to": "models", "name": "m", "format": "numpy"},
    "gates": ["evaluate.mean >= 3", "evaluate.success_rate not worse than deployed"],
}
TRIALS = [
    {"number": 0, "values": {"ppo.gamma": 0.9}, "state": "running"},
    {"number": 0, "values": {"ppo.gamma": 0.9}, "state": "done", "score": 3.0, "seconds": 1.5, "reason": ""},
    {"number": 1, "values": {"network.hidden_sizes": [8, 8]}, "state": "failed", "reason": "exit code 1"},
]
# Of PyYAML, each the cause of an error of its own kind.
TAGGED = (
    "2020-13-45", "2020-02-30 25:61:61", "!!timestamp soon", "!!bool 3", "!!int ''", "!!float x", "!!null 3",
    "!!binary '%'", "!!omap [1]", "!!pairs {a: 1}", "!!set [1]", "!!python/object/apply:os.system [id]",
    "!!python/name:os.system", "!nothing 1", "!!str {a: 1}", "!!map [1]", "&a [*a]", "*none", "{<<: 3}",
    "? {a: 1}\n: 2", "'\\ud800'", '"\\ud800"', "@", "%TAG ! x", "---\n---\n", "0x_", "1:99:99:99", "!!int 0b",
)  # fmt: skip


def npz_of(content: dict[str, Any], compression: int = zipfile.ZIP_STORED) -> bytes:
    """`np.savez`, for values of any kind."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive, warnings.catch_warnings(action="ignore"):
        for name, value in content.items():
            try:
                array = np.array(value)
            except (ValueError, OverflowError):
                array = np.array(None)
            part = io.BytesIO()
            np.save(part, array)
            archive.writestr(f"{name}.npy", part.getvalue())
    return stream.getvalue()


def odd_npz(rng: random.Random) -> bytes:
    """Archives whose parts are not what they say."""
    header = rng.choice(
        [
            b"{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,)}",
            b"{'descr': '|V0', 'fortran_order': False, 'shape': (1000000000000,)}",
            b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,)}",
            b"{'descr': '<i8', 'fortran_order': False, 'shape': (-1,)}",
            b"{'descr': '<U99999999999', 'fortran_order': False, 'shape': (2,)}",
            b"{'descr': 'O', 'fortran_order': False, 'shape': (2,)}",
            b"{'descr': [], 'fortran_order': 3}",
            b"{'descr': '<i8L', 'fortran_order': False, 'shape': (1L,)}",
            b"(" * 5_000,
            b"",
        ]
    )
    part = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_LZMA])) as archive:
        for name in LEVEL:
            archive.writestr(name + rng.choice([".npy", ""]), part if rng.random() < 0.6 else b"no array")
    return stream.getvalue()


def as_lines(content: Any) -> bytes:
    rows = content if isinstance(content, list) else [content]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_json(content: Any) -> bytes:
    return json.dumps(content).encode()


def as_yaml(content: Any) -> bytes:
    return yaml.safe_dump(content).encode()


def as_npz(content: Any) -> bytes:
    return npz_of(content) if isinstance(content, dict) else b""


def trials(file: Path) -> None:
    TrialRecords(file.parent).read()


def pipeline(file: Path) -> None:
    read_pipeline(str(file), command_flags())


# (name of the file, honest content, how it is written, how it is read, the error of its reader)
KINDS: dict[str, tuple[str, Any, Callable[[Any], bytes], Callable[[Path], Any], type[Exception]]] = {
    "level": ("0000.json", LEVEL, as_json, read_level, DatasetError),
    "level.npz": ("0000.npz", LEVEL, as_npz, read_level, DatasetError),
    "suite": ("suite.yaml", SUITE, as_yaml, lambda file: definition.read(str(file)), ConfigError),
    "space": ("space.yaml", SPACE, as_yaml, lambda file: Space.read(str(file)), ConfigError),
    "trials": ("trials.jsonl", TRIALS, as_lines, trials, ConfigError),
    "pipeline": ("pipeline.yaml", PIPELINE, as_yaml, pipeline, ConfigError),
}


def flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 20])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def splice(data: bytes, rng: random.Random) -> bytes:
    """A piece is left out, and another put there."""
    begin = rng.randrange(len(data))
    end = min(begin + rng.choice([0, 1, 10, 10_000]), len(data))
    odd = [b"", b"\0", b"\xff\xfe", b"\x1b[31m", b"\r\n", b"[" * 500, b"9" * 5_000, b"'", b'"', b"NaN", b"\t"]
    return data[:begin] + rng.choice(odd) + data[end:]


def tagged(content: Any, rng: random.Random) -> bytes:
    """A value of YAML is written as something that its constructors stumble over."""
    marked = json.loads(json.dumps(changed(content, rng)))
    text: str = yaml.safe_dump(marked)
    lines = text.splitlines(keepends=True) or ["a: 1\n"]
    index = rng.randrange(len(lines))
    head, colon, _ = lines[index].partition(":")
    lines[index] = f"{head}{colon} {rng.choice(TAGGED)}\n"
    return "".join(lines).encode()


def make(kind: str, file: Path, rng: random.Random) -> str:
    """Writes a hostile file; returns what was done to it."""
    _, content, written, _, _ = KINDS[kind]
    ways = ["flip", "splice", "value", "value", "damage"]
    ways += ["tagged", "tagged"] if kind in ("suite", "space", "pipeline") else []
    ways += ["odd", "flip", "flip"] if kind == "level.npz" else []
    way = rng.choice(ways)
    file.write_bytes(written(content))
    if way == "damage":
        way = rng.choice(list(DAMAGES))
        DAMAGES[way](file)
    elif way == "value":
        content = changed(content, rng)
        if kind == "trials" and rng.random() < 0.3:
            content = [rng.choice(VALUES)]
        file.write_bytes(written(content))
    elif way == "tagged":
        file.write_bytes(tagged(content, rng))
    elif way == "odd":
        file.write_bytes(odd_npz(rng))
    else:
        file.write_bytes({"flip": flip, "splice": splice}[way](file.read_bytes(), rng))
    return way


_opened: list[str] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _opened is not None:
        _opened.append(os.fsdecode(arguments[0]) if isinstance(arguments[0], (str, bytes)) else "")


sys.addaudithook(_note)


@contextlib.contextmanager
def opened() -> Iterator[list[str]]:
    """The names of all files that are opened meanwhile, but for those of Python and of the package."""
    global _opened
    _opened = found = []
    try:
        yield found
    finally:
        _opened = None
        own = (".py", ".pyc", ".so", ".zip", "entry_points.txt", "METADATA")
        tables = os.path.dirname(jaxrl.__file__)
        found[:] = [name for name in found if name and not name.endswith(own) and not name.startswith(tables)]


def problem(number: int, place: Path) -> str:
    """How a case ended otherwise than it may; "" if it did not."""
    rng = random.Random(number)
    kind = list(KINDS)[number % len(KINDS)]
    name, _, _, read, expected = KINDS[kind]
    file = place / str(number) / "simple" / name
    file.parent.mkdir(parents=True)
    way = make(kind, file, rng)
    said = ""
    with opened() as names:
        try:
            with limited(SECONDS):
                read(file)
        except expected as error:
            said = str(error)
        except BaseException as error:
            return f"{number}, {kind}, {way}: {type(error).__name__}: {str(error)[:300]}"
    if "\n" in said or len(said) > 2_000:
        return f"{number}, {kind}, {way}: said {said[:300]!r}"
    if others := set(names) - {str(file)}:
        return f"{number}, {kind}, {way}: opened {others}"
    return ""


@pytest.mark.parametrize("kind", KINDS)
def test_the_honest_file_is_read(kind: str, tmp_path: Path) -> None:
    name, content, written, read, _ = KINDS[kind]
    file = tmp_path / "simple" / name
    file.parent.mkdir()
    file.write_bytes(written(content))
    read(file)


@pytest.mark.slow
def test_some_hostile_files(tmp_path: Path) -> None:
    assert not [found for number in range(FEW) if (found := problem(number, tmp_path))]


@pytest.mark.slow
def test_hostile_files(tmp_path: Path) -> None:
    failed = [found for number in range(CASES) if (found := problem(number, tmp_path))]
    assert not failed, f"{len(failed)} of {CASES}:\n" + "\n".join(failed)
