"""The package as `pip install` leaves it, away from any checkout."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but what the wheel installs."""
    # Built from a copy: setuptools leaves its folder build/ beside the sources, and reads it the next time.
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for folder in ("jaxrl", "envs", "configs", "launch", "docs"):
        shutil.copytree(ROOT / folder, source / folder, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run([*pip, f"--target={target}", str(source)], check=True, timeout=300)
    return target


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with the arguments, where the package is installed."""
    env = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=installed, env=env, capture_output=True, text=True, timeout=300)


_PRINT_CONFIGS = """
import sys
from jaxrl.commands import run
for name in sys.argv[1:]:
    assert run(["jaxrl", "train", name, "--print-config"]) == 0, name
"""


def test_shipped_configs_are_installed(installed: Path) -> None:
    names = sorted(path.stem for path in (ROOT / "configs").glob("*.py"))
    done = run(installed, "-c", _PRINT_CONFIGS, *names)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("def get_config()") == len(names)


def test_all_that_is_not_code_is_installed(installed: Path) -> None:
    assert (installed / "jaxrl/py.typed").exists()
    assert (installed / "jaxrl/config/shipped/suites/cartpole.yaml").exists()
    assert (installed / "jaxrl/config/shipped/curricula/navigation.yaml").exists()
    assert (installed / "jaxrl/config/shipped/pipelines/navigation.yaml").exists()
    assert (installed / "jaxrl/config/shipped/pipeline_config.yaml").exists()
    assert (installed / "jaxrl/config/known_environments.yaml").exists()
    assert (installed / "jaxrl/config/other_trainers.yaml").exists()
    assert (installed / "jaxrl/reporting/pages/page.html").exists()
    assert (installed / "jaxrl/diagnostics/dashboard/page/index.html").exists()
    assert (installed / "bin/jaxrl").exists()
    for page in (ROOT / "docs").rglob("*.md"):
        there = installed / "jaxrl/docs" / page.relative_to(ROOT / "docs")
        assert there.exists() != page.is_relative_to(ROOT / "docs/design"), page
    for script in (ROOT / "launch").iterdir():
        assert (installed / "jaxrl/launch" / script.name).read_bytes() == script.read_bytes()


@pytest.mark.long
def test_several_processes_train_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    tiny = ("env.num_envs=16", "ppo.rollout_length=8", "stop.steps=512", "network.core_size=8")
    launch = [sys.executable, "-m", "jaxrl", "launch", "local_pod", "2"]
    command = [*launch, "--config=ppo", *(f"--config.{field}" for field in tiny), "--workdir=run"]
    env = os.environ | {"PYTHONPATH": str(installed), "PYTHON": sys.executable}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run/summary.json").exists()


def test_no_module_is_left_behind(installed: Path) -> None:
    here = {path.relative_to(ROOT / "jaxrl") for path in (ROOT / "jaxrl").rglob("*.py")}
    here |= {path.relative_to(ROOT) for path in (ROOT / "envs").rglob("*.py")}
    there = {path.relative_to(installed / "jaxrl") for path in (installed / "jaxrl").rglob("*.py")}
    assert here <= there


_IMPORT_ALL = """
import importlib, pkgutil, sys, jaxrl
for found in pkgutil.walk_packages(jaxrl.__path__, "jaxrl."):
    if not found.name.startswith(("jaxrl.config.shipped", "jaxrl.main", "jaxrl.__main__")):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:  # Ray alone imports those that need it.
            if error.name != "ray" or ".ray_" not in found.name:
                raise
assert "envs" not in sys.modules, sys.modules["envs"]
for name in jaxrl.__all__:
    getattr(jaxrl, name)
exec("from jaxrl import *")
"""

_ENVIRONMENT = """
import jax.numpy as jnp
from jaxrl import Box, Discrete, EnvSpec, JaxEnv, TimeStep

class Constant(JaxEnv):
    spec = EnvSpec("Constant", Box.of(-1, 1, (2,)), Discrete(2), max_episode_steps=4)

    def reset(self, key):
        return jnp.int32(0), jnp.zeros(2)

    def step(self, key, state, action):
        state += 1
        return state, TimeStep(jnp.zeros(2), jnp.float32(action), state == 4, jnp.array(False))
"""


_MAKE = """
import sys
from jaxrl.envs import registry
assert [registry.make(name).spec.name for name in sys.argv[1:]]
"""


def test_every_module_and_every_public_name_is_there(installed: Path) -> None:
    done = run(installed, "-c", _IMPORT_ALL)
    assert done.returncode == 0, done.stderr


# The folders of a checkout that Python could import there are not among what is installed.
_OURS = ("jaxrl", "configs", "envs")


def _imports(page: str) -> set[str]:
    """The imports from this project in the Python examples of a page, a statement for each name."""
    found = set()
    for block in re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE):
        with contextlib.suppress(SyntaxError):  # a line or two out of a class
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _OURS:
                    found |= {f"from {node.module} import {name.name}" for name in node.names}
                elif isinstance(node, ast.Import):
                    found |= {f"import {x.name}" for x in node.names if x.name.split(".")[0] in _OURS}
    return found


# All public names are there: above.
@pytest.mark.long
def test_what_the_examples_of_the_docs_import_is_there(installed: Path, tmp_path: Path) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    program = "\n".join(sorted(set().union(*(_imports(page.read_text()) for page in pages))))
    assert "from jaxrl import EnvSpec" in program
    env = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_trains_beside_another_package_envs(installed: Path, tmp_path: Path) -> None:
    """A user's own `envs`, as many projects have one, and an environment of theirs in it."""
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").write_text("")
    (tmp_path / "envs" / "mine.py").write_text(_ENVIRONMENT)
    tiny = ("env.num_envs=8", "ppo.rollout_length=8", "stop.steps=512", "network.core_size=8")
    fields = [f"--config.{field}" for field in (*tiny, "env.wrappers=()", "log.writers=jsonl")]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{installed}"}
    # On the device, and in worker processes, which import anew; the names of both kinds that are built in.
    for name in ("envs.mine:Constant", "gymnasium:CartPole-v1"):
        folder = f"--workdir=runs/{name.partition(':')[0]}"
        command = [sys.executable, "-m", "jaxrl", "train", "ppo", f"--env={name}", *fields, folder]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    command = [sys.executable, "-c", _MAKE, "envs.mine:Constant", "gymnax:CartPole-v1", "jaxrl:ProbeValue"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Its files update in tests/e2e/test_examples.py, and a package that registers its own trains, resumes and is
# evaluated in tests/e2e/test_installed_algorithm.py.
@pytest.mark.long
def test_the_tutorial_of_algorithms_is_done_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs/tutorials/algorithm.md").read_text()
    for name, block in re.findall(r"```(?:python|yaml)\n# ([\w.]+)\n(.*?)```", page, flags=re.DOTALL):
        (tmp_path / name).write_text(block)

    def jaxrl(*arguments: str) -> str:
        # The script that pip installs: Python does not look for modules in the working folder by itself.
        command = [sys.executable, "-P", str(installed / "bin/jaxrl"), *arguments]
        environment = os.environ | {"PYTHONPATH": str(installed)}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        return done.stdout + done.stderr if done.returncode == 0 else f"failed: {done.stderr}"

    def field(name: str) -> str:
        return f"--config.{name}"

    short = [field("stop.steps=8192"), field("evaluate.every_steps=4096"), field("env.num_envs=8")]
    for flag in ("ppo.auxiliary_loss=slow_features:slowness", "ppo.auxiliary_loss=predict_next:prediction",
                 "algorithm=clip_higher:ClipHigher"):  # fmt: skip
        said = jaxrl("train", "ppo_mlp", field(flag), *short, f"--workdir=runs/{flag.partition(':')[2]}")
        assert "done: " in said, said

    own = ["ppo_mlp", field("algorithm=reinforce:Reinforce"), field("reinforce.learning_rate=3e-3")]
    said = jaxrl("train", *own, field("stop.steps=300_000"), "--workdir=runs/reinforce")
    assert "done: " in said, said
    assert json.loads((tmp_path / "runs/reinforce/summary.json").read_text())["eval_return"] > 450
    refused = jaxrl("evaluate", "--workdir=runs/reinforce", "--episodes=8")
    assert "names the module reinforce, which is only imported with --trust" in refused, refused
    assert "return" in (said := jaxrl("evaluate", "--workdir=runs/reinforce", "--trust")), said
    assert "the same" in (said := jaxrl("export", "--workdir=runs/reinforce", "--format=numpy", "--trust")), (
        said
    )
    said = jaxrl("train", *own, field("stop.steps=310_000"), "--workdir=runs/reinforce")
    assert "resumed from the checkpoint at step" in said, said

    said = jaxrl("train", *own, *short, field("population.seeds=2"), "--workdir=runs/seeds")
    assert "best: members/seed_" in said, said
    said = jaxrl(
        "search", *own[:2], "--space=space.yaml", "--trials=2", "--verify=1", *short, "--workdir=runs/search"
    )
    assert "2 of 2 trials done" in said, said


def test_no_package_has_a_name_that_others_may_want(installed: Path) -> None:
    packages = {path.name for path in installed.iterdir() if path.is_dir() and path.suffix != ".dist-info"}
    assert packages - {"bin", "__pycache__"} == {"jaxrl"}
    (information,) = installed.glob("*.dist-info")
    assert information.name.startswith("jaxrl_recurrent-")
    assert (information / "top_level.txt").read_text().split() == ["jaxrl"]


def test_hints_name_the_distribution(installed: Path) -> None:
    done = run(installed, "-m", "jaxrl", "preflight", "ppo", "--topology=v9:1x1")
    assert done.returncode == 2
    code = "from jaxrl.config import installation; print(installation.command('video'))"
    command = [sys.executable, "-c", code]
    env = os.environ | {"PYTHONPATH": str(installed)}
    said = subprocess.run(command, cwd=installed, env=env, capture_output=True, text=True, check=True).stdout
    assert said.startswith("pip install")
    assert "-e" not in said.split()
