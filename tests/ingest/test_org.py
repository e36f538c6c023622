"""Org documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.documents import check_document

from copilotd.ingest.org import OrgParser
from copilotd.types import BlockKind, Document

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "formats"


def parse(text: str) -> Document:
    document = check_document(OrgParser(), text.encode())
    assert document is not None
    return document


def paths(document: Document) -> list[str]:
    return [" > ".join(section.heading_path) for section in document.sections if section.level]


def test_a_document() -> None:
    document = parse((FIXTURES / "guide.org").read_text(encoding="utf-8"))
    assert (document.title, document.description) == ("My Org", "about")
    assert paths(document) == ["First bold link", "First bold link > Sub", "Last"]
    assert document.sections[1].anchor == "first"
    for gone in ("STARTUP", "comment", "PROPERTIES", "secret", "|---", "begin_quote"):
        assert gone not in document.text


def test_blocks_of_a_document() -> None:
    document = parse((FIXTURES / "guide.org").read_text(encoding="utf-8"))
    found = [(block.kind, document.text[block.start : block.end]) for block in document.blocks]
    assert (BlockKind.CODE, "#+BEGIN_SRC python\n* not heading\n\nx = 1") in found
    assert (BlockKind.CODE, "fixed") in found
    assert (BlockKind.QUOTE, "Quoted.") in found
    assert (BlockKind.LIST_ITEM, "- item two\n  more") in found
    table = next(block for block in document.blocks if block.kind is BlockKind.TABLE)
    assert document.text[table.start : table.header_end] == "| a | b |"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a\n#+END_SRC\nb", "a\nb"),
        ("#+BEGIN_SRC sh\nnever closed", "never closed"),
        (":DRAWER:\n* H\n:END:", ":DRAWER:\n* H\n:END:"),
        ("#+BEGIN_EXPORT html\n<b>x</b>\n#+END_EXPORT", "x"),
        ("#+BEGIN_EXPORT latex\nx\n#+END_EXPORT\ny", "y"),
        ("#+CAPTION: Seen\n| a |", "Seen\n| a |"),
        ("#hashtag is text", "#hashtag is text"),
    ],
)
def test_what_is_seen(source: str, text: str) -> None:
    assert parse(source).text == text


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("/etc/x and 1/2", "/etc/x and 1/2"),
        ("*b* /i/ =a_b= ~--v~ +del+", "b i a_b --v del"),
        ("*a /b/ c* C++ BORG_REPO", "a b c C++ BORG_REPO"),
    ],
)
def test_a_headings_words(heading: str, words: str) -> None:
    assert paths(parse(f"* {heading}\nx\n")) == [words]
