"""The report of a pipeline: report.html and report.pdf, from what its stages have left in its folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxrl.config import ConfigError, text
from jaxrl.config.local_files import replacing
from jaxrl.config.sections import GREEDY, SAMPLED
from jaxrl.pipeline.definition import PipelineDefinition
from jaxrl.pipeline.digests import StagePlaces
from jaxrl.pipeline.gates import results_of, suites
from jaxrl.pipeline.pipeline_folder import DONE, RUNNING, PipelineFolder
from jaxrl.reporting.pages.page import (
    Section,
    html_page,
    machine_rows,
    pdf_page,
    require_packages,
    table_section,
)
from jaxrl.runs.records import stored_object, suite_rows

_LARGEST_PICTURE = 4 << 20  # bytes, that a page may hold of one picture
_SUITE_HEADINGS = {
    "episodes": "episodes",
    "success_rate": "success",
    "success_low": "low",
    "success_high": "high",
    "return_mean": "return",
    "length": "steps",
    "cost": "cost",
    "efficiency": "efficiency",
    "safety": "safety",
}
_NOTES = (
    "Seconds are for each stage's commands; a finished stage keeps its earlier ones.",
    "Success is a share of episodes, with a 95% interval (low, high); docs/evaluation.md explains the other "
    "columns of suites.",
    "The searched score of a winner is the highest of many noisy ones, and so likely too good; the verified "
    "one is a mean over seeds that the search had not seen.",
    "Each command can be run again by itself, from the folder in which the pipeline ran.",
)


def write(pipeline: PipelineDefinition, folder: PipelineFolder, pdf: bool) -> None:
    """Writes report.html, and report.pdf if wanted, about all stages that are enabled.

    Raises:
      ConfigError: the `compare` extra is missing, or a file cannot be written.
    """
    require_packages("compare", pdf=True)
    page: dict[str, Any] = {
        "title": f"Pipeline {text.printable(pipeline.name)}",
        "introduction": _introduction(pipeline, folder),
        "problems": [
            text.printable(f"{name}: {record.problem}")
            for name, record in _records(folder, pipeline.enabled)
            if record.problem
        ],
        "problems_title": "failed",
        "sections": list(_sections(pipeline, folder)),
        "notes": _NOTES,
    }
    pages = {"report.html": html_page(**page, command="pipeline").encode()}
    if pdf:
        pages["report.pdf"] = pdf_page(**page)
    for name, content in pages.items():
        try:
            with replacing(folder.root / name) as stream:
                stream.write(content)
        except OSError as error:
            raise ConfigError(f"{folder.root / name} cannot be written: {error.strerror}") from error


def _introduction(pipeline: PipelineDefinition, folder: PipelineFolder) -> str:
    summary = stored_object(f"{StagePlaces(folder.path).run()}/summary.json")
    trained = ""
    if summary:
        steps = summary.get("steps")
        said = f"{steps:,} steps" if isinstance(steps, int) else "some steps"
        trained = f" A policy was trained in {summary.get('environment')} for {said}."
    seconds = sum(record.seconds for _, record in _records(folder, pipeline.enabled))
    return text.printable(f"{', '.join(pipeline.enabled)}, in {text.seconds(seconds)}.{trained}")


def _sections(pipeline: PipelineDefinition, folder: PipelineFolder) -> Iterator[Section]:
    stages = pipeline.enabled
    yield table_section(
        "Stages", ("stage", "state", "seconds"), [_stage(folder, name) for name in stages], names=2
    )
    if pipeline.gates:
        rows = [_gate(folder, gate.text) for gate in pipeline.gates]
        yield table_section("Gates", ("condition", "value", "outcome"), rows, names=3)
    if rows := list(_results(folder, stages)):
        yield table_section("Results", ("stage", "result", "value"), rows, names=2)
    yield from _picture("Learning curve", folder.stage("visualize") / "curves.png")
    for suite in suites(folder.path):
        yield _suite(suite)
    if "search" in stages:
        yield from _search(folder)
    for film in sorted(folder.stage("visualize").glob("episode-*.gif")):
        yield from _picture(f"Episode of seed {film.stem.partition('-')[2]}", film)
    yield table_section("Settings", ("setting", "value"), _settings(pipeline, stages), names=2)
    summary = stored_object(f"{StagePlaces(folder.path).run()}/summary.json")
    yield table_section("Machine", ("", ""), list(machine_rows(summary)), names=2)
    commands = [
        (name, f"{step.seconds:.1f}", shlex.join(step.words))
        for name, record in _records(folder, stages)
        for step in record.steps
    ]
    yield table_section("Commands", ("stage", "seconds", "command"), commands, names=3)


def _stage(folder: PipelineFolder, name: str) -> tuple[str, str, str]:
    if (record := folder.records.get(name)) is None:
        return name, "not run", "-"
    # This page is written while its own stage runs.
    state = DONE if (name, record.state) == ("report", RUNNING) else record.state
    return name, state, f"{record.seconds:.1f}"


def _gate(folder: PipelineFolder, condition: str) -> tuple[str, str, str]:
    found = folder.gates.get(condition)
    return (condition, "-", "not looked at") if found is None else (condition, found.value, found.outcome)


def _records(folder: PipelineFolder, stages: Sequence[str]) -> Iterator[tuple[str, Any]]:
    return ((name, folder.records[name]) for name in stages if name in folder.records)


def _results(folder: PipelineFolder, stages: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    by_mode = tuple(f"eval_returns.{mode}" for mode in (GREEDY, SAMPLED))
    shown = {
        "search": ("searched", "verified"),
        "train": ("steps", "steps_per_second", "eval_return", *by_mode, "best_return"),
        "evaluate": ("episodes", "mean", "low", "high", "mean_length", "success_rate"),
    }
    for stage in stages:
        found = results_of(stage, folder.path)
        for name in shown.get(stage, ()):
            if name in found:
                yield stage, name.replace("_", " ").replace(".", ", "), _text_of(found[name])


def _text_of(value: Any) -> str:
    """A number in four digits, a whole one in all of them; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        return str(value)
    if value is not None and abs(value) < 2**53 and value == int(value):
        return text.count(value)
    return text.number(value)


def _picture(title: str, file: Path) -> Iterator[Section]:
    """A picture, if it is there and not too large."""
    if file.is_file() and file.stat().st_size <= _LARGEST_PICTURE:
        content = file.read_bytes()
        kind = "gif" if file.suffix == ".gif" else "png"
        yield Section(title, None, file.stem, **{kind: content})


def _suite(suite: dict[str, Any]) -> Section:
    found = list(suite_rows(suite))
    columns = [name for name in _SUITE_HEADINGS if any(row.get(name) is not None for _, _, row in found)]
    rows = [(mode, category, *(_text_of(row.get(name)) for name in columns)) for mode, category, row in found]
    headings = ("actions", "category", *(_SUITE_HEADINGS[name] for name in columns))
    return table_section(f"Suite {text.printable(str(suite.get('suite')))}", headings, rows, names=2)


def _search(folder: PipelineFolder) -> Iterator[Section]:
    study = Path(StagePlaces(folder.path).study)
    best = stored_object(study / "result.json").get("best")
    if isinstance(best, dict) and isinstance(best.get("values"), dict):
        rows = [(name, _text_of(value)) for name, value in best["values"].items()]
        yield table_section("Chosen by the search", ("field", "value"), rows)
    yield from _picture("Importance of the searched fields", study / "importance.png")


def _settings(pipeline: PipelineDefinition, stages: Sequence[str]) -> list[tuple[str, str]]:
    return [
        (f"{stage}.{name}", str(value))
        for stage in stages
        for name, value in pipeline.sections[stage].to_json().items()
        if value not in ("", [], None)
    ]
