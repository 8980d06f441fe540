"""Pages, examples, configs and helps use the field's words: listed phrases do not return."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jaxrl.commands import COMMANDS, arguments_of, module_of
from jaxrl.commands.arguments import help_text
from jaxrl.config.configuration import BUILT_IN
from jaxrl.config.listing import field_list, section_list

ROOT = Path(__file__).parents[2]
PHRASES = {
    r"\bone's own\b|\b(class|environment|game|loop|module|network|algorithm)s? of your own\b": "custom",
    r"\bof which\b": "a sentence with its noun",
    r"\bfilm(s|ed)?\b": "video, record",
    r"\bdrawn (actions|moves|ones|anew)\b|\bdraws? (its|their|his) (actions|moves)\b": "sampled",
    r"(?<!--)\bbest[ -]moves\b": "greedy",
    r"\bmachine in use\b": "busy machine",
    r"\bgo(es)? on\b": "continues, resumes",
    r"\bin turn\b|\bby turns\b": "interleaved, alternately",
    r"\b(as|what|which) others (report|state)\b|\bsays? others\b": "published; other",
    r"\band its like\b": "such as",
    r"\blie on one another\b|\bon one another\b": "stacked",
    r"\bgames? of two\b": "two-player game",
    r"\b(is|are|was|were) (told|asked)\b": "gets, reads, requires",
    r"\bcomes upon\b": "finds",
    r"\bby heart\b": "memorised",
    r"\bstate of the whole\b": "global state",
    r"\bhung up on\b": "closed",
    r"\blevels by what can be learnt\b": "level replay",
}


def stumbled(text: str) -> list[str]:
    """The phrases in a text, with what to write instead."""
    text = re.sub(r"\s+", " ", text).lower()
    return [f"{hit[0]} ({word})" for phrase, word in PHRASES.items() for hit in re.finditer(phrase, text)]


def test_pages_examples_and_configs() -> None:
    texts = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").glob("*.*"),
        *(ROOT / "configs").glob("*.*"),
    ]
    assert len(texts) > 100
    found = {path.relative_to(ROOT).as_posix(): stumbled(path.read_text()) for path in texts}
    assert {path: phrases for path, phrases in found.items() if phrases} == {}


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"launch", "completion", "docs"}))
def test_helps_of_commands(command: str) -> None:
    assert stumbled(help_text(module_of(command).__doc__, arguments_of(command))) == []


@pytest.mark.parametrize("algorithm", BUILT_IN)
def test_helps_of_fields(algorithm: str) -> None:
    assert stumbled(field_list(algorithm) + section_list(algorithm)) == []
