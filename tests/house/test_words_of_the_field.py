"""The words of the field: no identifier, comment, docstring or message has a word of the glossary's left column."""

from __future__ import annotations

import ast

import pytest

from benchmarks import house


def module(text: str, name: str = "reticent.engine.sample") -> house.Module:
    path = house.ROOT.joinpath(*name.split(".")).with_suffix(".py")
    return house.Module(name, path, ast.parse(text), text)


def test_no_identifier_is_of_the_left_column() -> None:
    assert len(house.modules()) > 100
    assert house.left_identifiers() == []


def test_no_phrase_is_of_the_left_column() -> None:
    assert house.left_phrases() == []


@pytest.mark.parametrize("word", house.WORDS)
@pytest.mark.parametrize(
    "sample",
    ["{} = 1", "def _{}(): ...", "def read(*, {}): ...", "class {}: ...", "self.num_{} = 1", "for {}_id in (): ..."],
)
def test_each_word_is_found_in_an_identifier(sample: str, word: str) -> None:
    assert len(house.left_identifiers([module(sample.format(word))])) == 1


@pytest.mark.parametrize("name", ["individual", "personal", "pieces_of_eight", *house.ALLOWED])
def test_words_of_the_field_are_no_finding(name: str) -> None:
    assert house.left_identifiers([module(f"{name} = 1")]) == []


@pytest.mark.parametrize("phrase", house.PHRASES)
@pytest.mark.parametrize("sample", ['"""Is {} here."""', "x = 1  # is {} here", 'raise ValueError("is {} here")'])
def test_each_phrase_is_found_in_text(sample: str, phrase: str) -> None:
    found = house.left_phrases([module(sample.format(phrase))])
    assert f"reticent/engine/sample.py:1: {phrase.strip()}" in found


@pytest.mark.parametrize(
    "word", ["People", "somebody", "someone", "nobody", "anybody", "anyone", "everybody", "everyone", "stranger"]
)
@pytest.mark.parametrize("sample", ['"""Of {}."""', "x = 1  # {}", 'def f():\n    """\n    Of {}.\n    """'])
def test_pronouns_are_found_in_comments_and_docstrings(sample: str, word: str) -> None:
    (found,) = house.left_phrases([module(sample.format(word))])
    assert found.endswith(word)


def test_help_and_pages_may_say_people() -> None:
    text = '"""Of people."""'
    for name in ("reticent.cli.sample", "reticent.audit.report.sample"):
        assert house.left_phrases([module(text, name)]) == []
    assert house.left_phrases([module('x = "of people"')]) == []


def test_a_docstring_that_begins_with_what_is_found() -> None:
    text = 'class A:\n    """What it holds."""'
    assert house.left_phrases([module(text)]) == ["reticent/engine/sample.py:2: What"]
