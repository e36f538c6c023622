from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.errors import ParseError
from copilotd.ingest.document_json import document_from_json, document_to_json, dump
from copilotd.types import Block, BlockKind, Document, Section

# Lone surrogates included: they stand for file names that are not UTF-8.
words = st.text(st.characters(exclude_characters="\n", exclude_categories=()), max_size=12)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    lines = draw(st.lists(words, min_size=1, max_size=8))
    text = "\n".join(lines)
    offsets = st.integers(0, len(text))

    def span() -> tuple[int, int]:
        first, second = draw(offsets), draw(offsets)
        return min(first, second), max(first, second)

    def section() -> Section:
        path = tuple(draw(st.lists(words, max_size=3)))
        return Section(draw(words), draw(st.integers(0, 6)), path, *span(), draw(words))

    def block() -> Block:
        start, end = span()
        return Block(draw(st.sampled_from(BlockKind)), start, end, draw(st.integers(0, 9)), start)

    numbers = st.lists(st.integers(1, 10**9), min_size=len(lines), max_size=len(lines)).map(tuple)
    return Document(
        doc_title=draw(words),
        title=draw(words),
        text=text,
        line_numbers=draw(numbers),
        sections=tuple(section() for _ in range(draw(st.integers(0, 3)))),
        blocks=tuple(block() for _ in range(draw(st.integers(0, 3)))),
        pages=draw(st.none() | numbers),
        description=draw(words),
        warnings=tuple(draw(st.lists(words, max_size=3))),
    )


def over_the_pipe(document: Document) -> Document:
    return document_from_json(json.loads(dump(document_to_json(document))))


@given(documents())
def test_a_document_survives_the_pipe(document: Document) -> None:
    assert over_the_pipe(document) == document


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_any_other_json_is_refused(value: Any) -> None:
    with pytest.raises(ParseError):
        document_from_json(value)


@given(documents(), st.data())
def test_one_wrong_field_is_refused_or_harmless(document: Document, data: st.DataObject) -> None:
    content = document_to_json(document)
    content[data.draw(st.sampled_from(sorted(content)))] = data.draw(json_values)
    try:
        rebuilt = document_from_json(content)
    except ParseError:
        return
    assert over_the_pipe(rebuilt) == rebuilt


def test_places_outside_the_text_are_refused() -> None:
    section = Section("a", 1, ("a",), 0, 99)
    document = Document("t", "", "short", (1,), (section,), ())
    with pytest.raises(ParseError, match="outside the text"):
        over_the_pipe(document)
