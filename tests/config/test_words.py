"""The words of other trainers: each is answered with something that exists here."""

from __future__ import annotations

import re

import pytest

from jaxrl.commands import COMMANDS, arguments_of
from jaxrl.config import declared_fields, words

FLAGS = {argument.name for command in COMMANDS for argument in arguments_of(command)}


@pytest.mark.parametrize("word", words.table().fields)
def test_fields_exist(word: str) -> None:
    assert words.table().fields[word] in declared_fields()
    assert word == words.normalize_word(word)


@pytest.mark.parametrize("word", words.table().flags)
def test_flags_exist(word: str) -> None:
    assert word == words.normalize_word(word)
    for flag in re.findall(r"--([\w.-]+)", words.table().flags[word]):
        name = flag.removeprefix("config.")
        assert name in FLAGS if name == flag else name in declared_fields(), flag


def test_words_in_any_spelling() -> None:
    found = words.flag_hint("TOTAL_TIMESTEPS")
    assert found == words.flag_hint("train.total-timesteps") == "; here it is `--config.stop.steps=VALUE`"
    assert words.metric_hint("mean_reward") == "; here it is `eval/return`"
    assert words.flag_hint("nothing-like-it") == words.field_hint("seed") == words.metric_hint("x") == ""
