"""The command that adds an extra is the one that fits how the package was installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jaxrl.envs import installation
from jaxrl.envs.installation import DISTRIBUTION

ROOT = Path(__file__).parents[2]


def test_a_checkout_is_installed_from_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert installation.command("video").endswith("pip install -e '.[video]'")
    monkeypatch.chdir(tmp_path)
    assert installation.command("video").endswith(f"pip install -e '{ROOT}[video]'")


@pytest.mark.parametrize(
    ("noted", "requirement"),
    [
        (None, f"{DISTRIBUTION}[s3]"),
        ({"url": "file:///a/b", "dir_info": {}}, "/a/b[s3]"),
        ({"url": "https://x/y.whl", "archive_info": {}}, f"{DISTRIBUTION}[s3] @ https://x/y.whl"),
        ({"url": "https://x/y", "vcs_info": {"vcs": "git"}}, f"{DISTRIBUTION}[s3] @ git+https://x/y"),
    ],
)
def test_an_installed_package_is_installed_again_from_where_it_came(
    noted: Any, requirement: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    info = tmp_path / f"{DISTRIBUTION.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 1.0\n")
    if noted:
        (info / "direct_url.json").write_text(json.dumps(noted))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(installation, "__file__", str(tmp_path / "jaxrl" / "envs" / "installation.py"))
    assert installation.command("s3").endswith(f"pip install '{requirement}'")


def test_what_asks_for_a_package_of_the_same_files_is_installed_without_it() -> None:
    first, second = installation.command("popgym_arcade").split(" && ")
    assert first.endswith("[popgym-arcade]'")
    assert second.endswith("pip install --no-deps popgym-arcade")
