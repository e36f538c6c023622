"""Plain text by paragraphs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.documents import FIXTURES, check_document

from copilotd.ingest.plain import PlainTextParser
from copilotd.types import BlockKind, Document, Parser


def parse(text: str) -> Document:
    return PlainTextParser().parse(text.encode(), "notes")


def test_it_is_a_parser() -> None:
    assert isinstance(PlainTextParser(), Parser)


def test_paragraphs_become_blocks_of_one_section() -> None:
    document = parse("One\nstill one.\n\n\n# not a heading\n\n---\n\nThree.")
    assert [section.heading for section in document.sections] == ["notes"]
    assert [document.text[block.start : block.end] for block in document.blocks] == [
        "One\nstill one.",
        "# not a heading",
        "Three.",
    ]
    assert {block.kind for block in document.blocks} == {BlockKind.PARAGRAPH}
    assert document.line_numbers == (1, 2, 3, 5, 6, 7, 8, 9)


def test_a_file_without_words_has_nothing_to_cite() -> None:
    document = parse(" \n---\n\n")
    assert document.text == ""
    assert document.sections == ()
    assert document.blocks == ()


def test_utf16_with_a_byte_order_mark() -> None:
    document = PlainTextParser().parse((FIXTURES / "md31_utf16le.txt").read_bytes(), "phrase")
    assert "amber-otter-12" in document.text
    assert "\0" not in document.text


@given(st.text(max_size=300))
def test_every_line_with_words_is_in_a_block(text: str) -> None:
    source = text.encode("utf-8", "replace")
    check_document(PlainTextParser(), source)
