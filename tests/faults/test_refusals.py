"""Folders and data that are not to be trusted: refused with one line, never run, never written over."""

from __future__ import annotations

import ast
import dataclasses
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl.config import resolve
from jaxrl.main import main
from jaxrl.runs.checkpoint import Checkpointer
from jaxrl.runs.folder import RunFolder
from jaxrl.training.assembly import Assembly
from tests.faults.harness import CONFIG, ROOT, Run, spoil
from tests.faults.tiny import get_config
from tests.runs.checkpoint.checkpoints import files_of

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def train(workdir: Path | str, *overrides: str) -> int:
    return main(["jaxrl", f"--config={CONFIG}", f"--workdir={workdir}", *overrides])


@pytest.mark.slow
def test_another_task_is_refused_with_every_field_and_both_values(
    straight: Run, run: Run, capsys: Output
) -> None:
    shutil.copytree(straight.folder, run.folder)
    before = files_of(run.folder) | {".lock": b""}  # who had it last
    overrides = ("--config.seed=1", "--config.network.core_size=16", "--config.ppo.learning_rate=1e-5")
    assert train(run.folder, *overrides) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "`seed` (=0 there, 1 now), `network.core_size` (=8 there, 16 now)" in error
    assert "learning_rate" not in error  # that may change
    assert files_of(run.folder) | {".lock": b""} == before


@pytest.mark.slow
def test_no_intact_checkpoint_is_never_a_fresh_start(straight: Run, run: Run, capsys: Output) -> None:
    shutil.copytree(straight.folder, run.folder)
    damaged = sorted(run.checkpoints)
    for path in run.checkpoints.values():
        spoil(path)
    for attempt in range(2):  # nor is it at the next try, when all have been set aside
        assert train(run.folder) == 2
        output, error = capsys.readouterr()
        assert output.count("is damaged") == (0 if attempt else len(damaged))
        last = error.splitlines()[-1]
        assert last.startswith(
            f"error: {run.folder}/checkpoints has held checkpoints, but none that is intact"
        )
        assert "--config.init_from" in last
        assert run.rows() == straight.rows()
        assert sorted(int(path.name) for path in (run.folder / "corrupt").iterdir()) == damaged


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, capsys: Output) -> None:
    if os.geteuid():
        tmp_path.chmod(0o500)
        folder = tmp_path / "run"
    elif Path("/proc/self").exists():
        folder = Path("/proc/jaxrl")  # root may write everywhere else
    else:
        pytest.skip("root can write everywhere")
    assert train(folder) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(f"error: `--workdir` (={folder}")
    tmp_path.chmod(0o700)


@pytest.mark.slow
def test_init_from_takes_what_its_patterns_name(straight: Run, run: Run, capsys: Output) -> None:
    # Ends soon, and learns nothing: the parameters that it began with are in its checkpoint.
    options = (
        f"--config.init_from={straight.folder}",
        "--config.init_names=params/*",
        "--config.stop.seconds=1e-3",
        "--config.ppo.learning_rate=0",
    )
    assert train(run.folder, *options) == 0
    output = " ".join(capsys.readouterr().out.split())
    (_, arrays), (_, theirs) = run.final(), straight.final()
    parameters = [name for name in arrays if name.startswith("learner/policy/params/")]
    assert f"starting from {len(parameters)} arrays from {straight.folder}" in output
    assert "obs_stats/count (not among `init_names`)" in output
    for name in parameters:
        np.testing.assert_array_equal(arrays[name], theirs[name], err_msg=name)
    count = "learner/policy/obs_stats/count"
    assert arrays[count] != theirs[count]
    assert arrays["learner/updates"] < theirs["learner/updates"]


def test_init_from_without_a_checkpoint_is_refused(run: Run, tmp_path: Path, capsys: Output) -> None:
    assert train(run.folder, f"--config.init_from={tmp_path}") == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("error: `init_from` (=")
    assert "holds no checkpoint" in lines[-1]


class Payload:
    """A pickle that runs code where it is loaded."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self._marker,)


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """Exists once a payload has run."""
    return tmp_path / "marker"


def payloads(marker: Path) -> list[bytes]:
    pickled = pickle.dumps(Payload(marker))
    yaml = f"!!python/object/apply:os.system ['touch {marker}']\n".encode()
    expression = f"__import__('pathlib').Path({str(marker)!r}).touch()\n".encode()
    return [pickled, yaml, expression]


def test_the_payload_works(marker: Path) -> None:
    pickle.loads(payloads(marker)[0])
    assert marker.exists()


@pytest.mark.slow
def test_no_file_of_a_checkpoint_is_executed(straight: Run, tmp_path: Path, marker: Path) -> None:
    abstract = Assembly.build(resolve(get_config(), 1)).runtime.learning.abstract_state()
    abstract = dataclasses.replace(abstract, learner=dataclasses.replace(abstract.learner, planned=None))
    newest = f"checkpoints/{straight.newest()}/"
    names = [name for name in files_of(straight.folder) if name.startswith(newest)]
    assert len(names) > 8
    for payload in payloads(marker):
        for i, name in enumerate(names):
            folder = Path(shutil.copytree(straight.folder / "checkpoints", tmp_path / str(i) / "checkpoints"))
            (folder.parent / name).write_bytes(payload)
            checkpointer = Checkpointer(str(folder), keep=3)
            found = checkpointer.restore_latest(abstract)
            checkpointer.close()
            assert found is not None
            assert found[0] > 0
            shutil.rmtree(folder.parent)
    assert not marker.exists()


@pytest.mark.slow
def test_no_config_json_is_executed(straight: Run, run: Run, marker: Path) -> None:
    shutil.copytree(straight.folder, run.folder)
    for payload in payloads(marker):
        (run.folder / "config.json").write_bytes(payload)
        # It is damaged; the same stands in every checkpoint.
        assert RunFolder(str(run.folder)).read_config().env.num_envs == get_config().env.num_envs
    assert not marker.exists()


EXECUTING = {"cloudpickle", "code", "dill", "joblib", "marshal", "pickle", "runpy", "shelve", "yaml"}
UNPACKING = {"tarfile", "zipfile", "shutil.unpack_archive"}
CALLS = {"compile", "eval", "exec", "spec.loader.exec_module", "np.load", "numpy.load", "jnp.load"}
# The config file; messages between the trainer and the workers that it has started itself; modules that a
# search names for its children; suites and spaces, by `yaml.SafeLoader`, and a space that a pipeline writes;
# exported and converted arrays, with `allow_pickle=False`; the error of a damaged archive; episodes, whose
# members are read one by one, each up to a size, and never unpacked to a path.
CONFIG_FILE = ("jaxrl/config/files.py", "spec.loader.exec_module")
ALLOWED = {
    CONFIG_FILE,
    ("envs/adapters/xminigrid_rulesets.py", "pickle"),  # its reader makes arrays and plain values alone
    ("envs/host/gymnasium_slot.py", "runpy"),  # of a file beside it
    ("envs/host/worker.py", "pickle"),
    ("envs/host/worker.py", "runpy"),  # of a file beside it
    ("envs/native/platformer/level.py", "np.load"),
    ("envs/native/platformer/level.py", "zipfile"),
    ("jaxrl/config/data_files.py", "yaml"),
    ("jaxrl/config/words.py", "zipfile"),  # the names of members alone
    ("jaxrl/experience/demonstrations/episode.py", "zipfile"),
    ("jaxrl/inference/numpy_policy.py", "np.load"),
    ("jaxrl/training/conversion.py", "np.load"),
    ("jaxrl/runs/child_process.py", "runpy"),
    ("jaxrl/pipeline/stages.py", "yaml"),
    ("jaxrl/training/conversion.py", "zipfile"),
}


@pytest.mark.slow
def test_nothing_can_execute_data_or_unpack_archives() -> None:
    found = set()
    for path in (p for package in ("jaxrl", "envs") for p in (ROOT / package).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        found |= {(name, danger) for danger in _dangers(ast.parse(path.read_text()))}
    assert found <= ALLOWED, "if data cannot get there, add it to the exceptions"
    assert CONFIG_FILE in found  # the search finds what there is


def _dangers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS | UNPACKING:
            yield ast.unparse(node.func)
        yield from (name for name in names if name in UNPACKING or name.partition(".")[0] in EXECUTING)
