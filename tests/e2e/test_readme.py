"""The code and commands of the README, and of the pages that it leads to first, do what they say."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from jaxrl.commands import COMMANDS
from jaxrl.config.configuration import BUILT_IN
from tests import processes

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
USAGE = (ROOT / "docs/usage.md").read_text()
LIBRARY = (ROOT / "docs/library.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", LIBRARY, flags=re.DOTALL)
SHORTER = [
    "--config.stop.steps=512",
    "--config.env.num_envs=8",
    "--config.ppo.rollout_length=8",
    "--config.network.core_size=8",
    "--config.evaluate.episodes=2",
    "--config.log.writers=jsonl",
    "--config.log.layers=false",
]


# The script that pip installs as `jaxrl`: Python does not look for modules in the working folder by itself.
_JAXRL = "import sys; from jaxrl.commands import run; sys.exit(run(['jaxrl', *sys.argv[1:]]))"


def run(arguments: list[str], folder: Path) -> None:
    processes.succeed(*arguments, cwd=folder)


@pytest.mark.slow
def test_extensions_train_as_shown(tmp_path: Path) -> None:
    options = [f"--config={ROOT}/configs/ppo.py", "--workdir=run", *SHORTER]
    for name in ("my_env", "my_network"):
        (block,) = [block for block in BLOCKS if block.startswith(f"# {name}.py")]
        assert len(block.splitlines()) <= 32
        (tmp_path / f"{name}.py").write_text(block)
        (command,) = [line for line in LIBRARY.splitlines() if f"{name}:" in line and "jaxrl train" in line]
        options += [word for word in shlex.split(command) if word.startswith(("--config.", "--env="))]
    run(["-P", "-c", _JAXRL, "train", *options], tmp_path)
    assert (tmp_path / "run" / "summary.json").exists()
    trained = json.loads((tmp_path / "run" / "config.json").read_text())
    assert trained["env"]["name"].startswith("my_env:")
    assert trained["network"]["encoder"].startswith("my_network:")


def test_the_tutorials_files_are_not_checked_with_the_code(tmp_path: Path) -> None:
    """A user who follows the page in a checkout can still run `make test`."""
    (tmp_path / "jaxrl").mkdir()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for block in BLOCKS:
        if name := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / name[1]).write_text("import os\n" + block)
    assert [path.name for path in tmp_path.glob("*.py")]

    def complaints() -> list[int]:
        commands = ["check", "."], ["format", "--check", "."]
        ruff = [sys.executable, "-m", "ruff"]
        return [subprocess.run([*ruff, *x], cwd=tmp_path, capture_output=True).returncode for x in commands]

    assert complaints() == [0, 0]
    (tmp_path / "jaxrl" / "bad.py").write_text("import os")
    assert complaints() == [1, 1]


@pytest.mark.slow
def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    run(["-c", block.replace("100_000", "8192")], tmp_path)


# `make_train`: tests/programs/test_make_train.py.
@pytest.mark.long
def test_library_example_runs(tmp_path: Path) -> None:
    (block,) = [block for block in BLOCKS if "make_train" in block]
    run(["-c", block.replace("100_000", "8192").replace("range(3)", "range(1)")], tmp_path)


# `jaxrl.load`: tests/inference/test_loaded_policy.py.
@pytest.mark.long
def test_a_trained_policy_acts_as_shown(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    run(["-m", "jaxrl", "train", "ppo", "--workdir=runs/mine", *SHORTER], tmp_path)
    (block,) = [block for block in BLOCKS if "jaxrl.load(" in block]
    run(["-c", block], tmp_path)


@pytest.mark.long
def test_population_examples_run(tmp_path: Path) -> None:
    text = (ROOT / "docs/populations.md").read_text()
    vmapped, spread = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    for block, check in (
        (vmapped, "assert returns.shape == (3, 4, 32), returns.shape"),
        (spread, 'assert metrics["episode/return"].shape == (8, 32)'),
    ):
        run(["-c", block.replace("100_000", "16_384") + f"\n{check}\n"], tmp_path)


def test_the_readme_is_a_page_that_leads_on() -> None:
    assert len(README.encode()) <= 12_000
    index = (ROOT / "docs/index.md").read_text()
    for page in (README, index):
        assert page.index("pip install") < page.index("jaxrl train ppo")
    assert set(BUILT_IN) - {"behavior_cloning"} <= set(re.findall(r"\w+", index.lower()))
    linked = set(re.findall(r"\]\((?!https?:)([^)#\s]+)", README))
    assert {"docs/results_configs.md", "docs/img/breakout.gif"} <= linked
    assert not [name for name in linked if not (ROOT / name).exists()]
    assert set(re.findall(r"^\| `(\w+)` \| ", USAGE, flags=re.M)) >= set(BUILT_IN)


def test_tables_have_what_was_measured_and_leave_out_the_rest() -> None:
    cells = re.compile(r"^\|.*\| *not measured *\|", flags=re.M)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert not [page.name for page in pages if cells.search(page.read_text())]


def test_every_command_is_in_the_table() -> None:
    first = re.findall(r"^\| (`jaxrl .*?) \|", (ROOT / "docs/commands.md").read_text(), flags=re.M)
    assert set(re.findall(r"`jaxrl ([a-z-]+)`", " ".join(first))) == set(COMMANDS)
