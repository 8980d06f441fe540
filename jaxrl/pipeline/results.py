"""The results of stages as numbers by name, for gates and reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxrl.config import flatten
from jaxrl.pipeline.stages import StagePlaces
from jaxrl.runs.records import stored_object, suite_rows

# Of a suite, what a gate or a table may ask of each category.
SUITE_COLUMNS = ("episodes", "success_rate", "return_mean", "length", "cost", "efficiency", "safety")


def of(stage: str, folder: str) -> dict[str, float]:
    """The results of a stage in the folder of a pipeline; empty if it has none.

    `train` has the numbers of summary.json, `search` has its best trial's, and `evaluate` has numbers of its
    episodes, and of its suites as `SUITE.NAME` and `SUITE.CATEGORY.NAME`: in the mode of these episodes, if
    they were played in it.
    """
    places = StagePlaces(folder)
    if stage == "search":
        return _search(stored_object(f"{places.study}/result.json"))
    if stage in ("train", "pretrain"):
        return dict(_numbers(stored_object(f"{places.run(stage)}/summary.json")))
    if stage == "evaluate":
        episodes = stored_object(f"{folder}/evaluate/episodes.json")
        found = dict(_numbers(episodes))
        for suite in suites(folder):
            found |= _suite(suite, episodes.get("mode"))
        return found
    return {}


def suites(folder: str) -> list[dict[str, Any]]:
    """The results of the suites that were played, in order."""
    files = sorted(
        Path(folder, "evaluate").glob("suite-*.json"), key=lambda file: (len(file.name), file.name)
    )
    return [found for file in files if (found := stored_object(file))]


def _suite(suite: Mapping[str, Any], preferred: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    # Of other modes than the preferred one the first counts.
    for _, category, row in sorted(suite_rows(suite), key=lambda each: each[0] != preferred):
        prefix = str(suite.get("suite")) if category == "all" else f"{suite.get('suite')}.{category}"
        for column in SUITE_COLUMNS:
            if _is_number(row.get(column)):
                found.setdefault(f"{prefix}.{column}", float(row[column]))
    return found


def _search(result: Mapping[str, Any]) -> dict[str, float]:
    best = result.get("best")
    verified = result.get("verified")
    found = {}
    if isinstance(best, Mapping) and _is_number(best.get("searched")):
        found["searched"] = float(best["searched"])
    if isinstance(verified, list) and verified and _is_number(verified[0].get("verified")):
        found["verified"] = float(verified[0]["verified"])
    return found


def _numbers(data: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in flatten(data).items():
        if _is_number(value):
            yield name, float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def deployed_evaluation(model: Path) -> dict[str, float] | None:
    """The evaluation of the deployed model; None if nothing is deployed.

    In a registry that is the version in production, else the latest; an exported model has it beside it.
    """
    for place in (model / "production", model / "latest", model):
        found = dict(_numbers(stored_object(place / "evaluation.json")))
        if found.get("episodes"):
            return found
    return None
