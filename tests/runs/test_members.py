"""Which folder's policy is meant where a population is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxrl.config import ConfigError
from jaxrl.runs import members, records


def population(folder: Path, seeds: int) -> Path:
    for seed in range(seeds):
        member = folder / "members" / f"seed_{seed}"
        member.mkdir(parents=True)
        (member / "config.json").write_text("{}")
    (folder / "config.json").write_text("{}")
    return folder


def test_members_are_listed_in_the_order_of_their_seeds(tmp_path: Path) -> None:
    found = members.member_folders(str(population(tmp_path, 11)))
    assert [Path(each).name for each in found] == [f"seed_{seed}" for seed in range(11)]
    assert members.member_folders(found[0]) == []


def test_a_single_run_is_itself_and_a_population_its_best_member(tmp_path: Path) -> None:
    folder = population(tmp_path, 2)
    assert members.with_policy(str(folder / "members/seed_0")) == str(folder / "members/seed_0")
    (folder / "summary.json").write_text(json.dumps({"best_member": "members/seed_1"}))
    assert members.with_policy(str(folder)) == str(folder / "members/seed_1")


@pytest.mark.parametrize("summary", [None, "{", "{}", '{"best_member": null}'])
def test_a_population_without_a_best_member_names_one_to_choose(tmp_path: Path, summary: str | None) -> None:
    folder = population(tmp_path, 2)
    if summary is not None:
        (folder / "summary.json").write_text(summary)
    with pytest.raises(ConfigError, match="name a member, such as .*seed_0"):
        members.with_policy(str(folder))


def test_whoever_looks_for_runs_finds_the_members(tmp_path: Path) -> None:
    folder = population(tmp_path / "runs" / "first", 2)
    names = [Path(each).name for each in records.find([str(folder.parent)])]
    assert names == ["seed_0", "seed_1"]
