"""A release says the same about itself everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import jaxrl

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_that_of_the_package_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == jaxrl.__version__
    released = re.findall(r"^## \[(\d\S*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    assert released[0] == (jaxrl.__version__, citation["date-released"])
    assert "version" in PROJECT["dynamic"]


def test_every_extra_is_explained() -> None:
    table = (ROOT / "docs/installation.md").read_text()
    explained = re.findall(r"^\| `([\w-]+)` \|", table, flags=re.M)
    assert sorted(explained) == sorted(PROJECT["optional-dependencies"])
