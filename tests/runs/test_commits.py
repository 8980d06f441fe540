"""The commits of the checkout and of the working directory, as git says them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxrl.runs import commits as module
from jaxrl.runs.commits import commit_of, commits

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "env.py").write_text("LEVELS = 3\n")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "--quiet", "--message=first")
    return folder


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    commits.cache_clear()
    yield
    commits.cache_clear()


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_commit_is_clean_until_a_file_of_it_changes(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    (repository / "runs").mkdir()
    (repository / "runs" / "row").write_text("not under version control")
    assert commit_of(repository) == {"commit": head, "clean": True}
    (repository / "env.py").write_text("LEVELS = 4\n")
    assert commit_of(repository) == {"commit": head, "clean": False}


def test_a_repository_without_a_commit_has_none(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    assert commit_of(tmp_path) is None


def test_the_working_directory_has_an_entry_of_its_own(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "inner").mkdir()
    monkeypatch.chdir(repository / "inner")
    assert commits()["working_directory"] == {"commit": git(repository, "rev-parse", "HEAD"), "clean": True}


def test_the_checkout_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(module.__file__).parent)
    assert "working_directory" not in commits()


def test_what_a_hook_sets_leads_nowhere_else(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert re.fullmatch(r"[0-9a-f]{40}", (commit_of(repository) or {})["commit"])


def test_without_git_there_is_no_entry(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commits() == {}


def test_a_git_that_hangs_is_not_waited_for(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(module, "_SECONDS", 0.2)
    assert commit_of(repository) is None


def test_outside_of_repositories_there_is_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "working_directory" not in commits()
