"""Suites whose packages raise on import: one line, and the other suites are listed.

The suite and what it asks for are made up, as when tensorflow_probability 0.25 meets jax 0.11.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import pytest

from jaxrl.commands.environments import main
from jaxrl.config import ConfigError
from jaxrl.config.environment import environment_spec
from jaxrl.envs import installation
from jaxrl.envs.adapters.suite import load


def package(folder: Path, name: str, version: str, text: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text)
    information = folder / f"{name}-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (information / "top_level.txt").write_text(name)


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """NAVIX asks for `probability`, which asks jax for what it no longer has."""
    package(tmp_path, "navix", "9.8", "import probability\n")
    package(tmp_path, "probability", "0.25", "import jax\n\njax.no_such_attribute\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "navix"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


LINE = (
    f"navix: importing navix failed in probability (navix 9.8, probability 0.25, jax {jax.__version__}): "
    "AttributeError: module 'jax' has no attribute 'no_such_attribute'; versions that fit: "
)


def test_the_line_names_the_package_the_versions_and_what_to_install(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jaxrl environments", "navix"]) == 2
    assert capsys.readouterr().err == f"error: {LINE}{installation._install()} --upgrade navix probability\n"
    assert main(["jaxrl environments"]) == 0
    rows = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert ["navix", "device", "yes"] in rows
    assert ["gymnax", "device", "yes"] in rows
    assert main(["jaxrl environments", "gymnax", "--names", "--match=cartpole"]) == 0
    assert "gymnax:CartPole-v1" in capsys.readouterr().out


def test_training_says_the_same(broken: Path) -> None:
    name = "navix:Navix-Empty-5x5-v0"
    with pytest.raises(ConfigError) as caught:
        environment_spec("env.name", name, name, ())
    assert str(caught.value).startswith(f"`env.name` (='{name}'): {LINE}")
    assert "\n" not in str(caught.value)


def test_what_is_not_installed_is_another_matter(broken: Path) -> None:
    (broken / "probability" / "__init__.py").write_text("import no_such_package\n")
    with pytest.raises(ImportError, match="navix: environments need its package: .*'no_such_package'"):
        load("navix", "navix")


def test_a_suite_that_raises_by_itself(broken: Path) -> None:
    (broken / "navix" / "__init__.py").write_text("raise OSError('no\\ndata')\n")
    with pytest.raises(ImportError) as caught:
        load("navix", "navix")
    assert f"failed in navix (navix 9.8, jax {jax.__version__}): OSError: no data; " in str(caught.value)
    assert str(caught.value).endswith("--upgrade navix")
