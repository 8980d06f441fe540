"""The documentation site: every page has its place, the site builds, and the tutorials' code trains."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import processes

ROOT = Path(__file__).parents[2]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def placed(entry: Any) -> Iterator[str]:
    """The pages under an entry of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from placed(part)


def test_every_place_has_its_page() -> None:
    """Pages without a place get one at the end of their part, from `.ci/site.py`."""
    pages = list(placed(SITE["nav"]))
    assert len(pages) == len(set(pages))
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    generated = {
        f"reference/{name}.md" for name in "fields commands python modules configs changelog".split()
    }
    assert set(pages) <= written | generated


def test_pages_link_to_the_repository_that_the_project_names(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: make docs")
    spec = importlib.util.spec_from_file_location("jaxrl_site", ROOT / ".ci/site.py")
    assert spec
    assert spec.loader
    site = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "jaxrl_site", site)
    spec.loader.exec_module(site)
    named = '[project.urls]\nRepository = "https://example.org/jaxrl"\n'
    assert site.repository("[project]\nname = 'x'\n") == ""
    assert site.repository(named) == "https://example.org/jaxrl"


@pytest.mark.slow
def test_the_site_builds_without_a_broken_link(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: make docs")
    pytest.importorskip("material", reason="mkdocs-material is not installed: make docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path / 'site'}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    fields = (tmp_path / "site/reference/fields/index.html").read_text()
    assert "ppo.learning_rate" in fields
    start = (tmp_path / "site/start/index.html").read_text()
    assert '<span class="nb">source</span>' in start  # commands are highlighted
    assert "img/logo.svg" in start
    assert "make_train" in (tmp_path / "site/reference/python/index.html").read_text()


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "flags"),
    [
        ("environment", ["--env=corridor:Corridor(length=8)"]),
        ("network", ["--config.network.core=my_core:Leaky", "--config.network.encoder=my_network:fourier"]),
    ],
)
def test_the_code_of_tutorials_trains(page: str, flags: list[str], tmp_path: Path) -> None:
    text = (ROOT / f"docs/tutorials/{page}.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        (tmp_path / block.split()[1]).write_text(block)
    tiny = ("stop.steps=512", "env.num_envs=8", "ppo.rollout_length=8", "network.core_size=8")
    fields = [f"--config.{field}" for field in tiny]
    processes.succeed("-m", "jaxrl", "train", "ppo", *flags, *fields, "--workdir=run", cwd=tmp_path)
    assert (tmp_path / "run/summary.json").exists()
