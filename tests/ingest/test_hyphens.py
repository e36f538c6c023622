from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.ingest.hyphens import Vocabulary, join_across


def joined(above: str, below: str, *document: str) -> str | None:
    result = join_across(above, below, Vocabulary(document))
    return None if result is None else "|".join(result)


@pytest.mark.parametrize(
    ("above", "below", "expected"),
    [
        ("rely on the informa-", "tion panel", "rely on the information|panel"),
        ("which shows a re-", "markable amount", "which shows a remarkable|amount"),
        ("capabili-", "ties.", "capabilities.|"),
        ("A well-", "known trick", "A well-known|trick"),
        ("the state-of-the-", "art filter", "the state-of-the-art|filter"),
        ("Part no. AB-", "120 stays", "Part no. AB-120|stays"),
        ("by Smith-", "Jones and", "by Smith-Jones|and"),
        ("a JSON-", "based file", "a JSON-based|file"),
        ("the quick-", "ly moved", "the quickly|moved"),
        ("soft\u2010", "ware is", "software|is"),
        ("pass ASN1_PRINT_", "NAME here", "pass ASN1_PRINT_NAME|here"),
    ],
)
def test_a_broken_word_moves_up(above: str, below: str, expected: str) -> None:
    assert joined(above, below) == expected


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ("one - two -", "three"),
        ("the option --", "verbose"),
        ("a plain line", "and another"),
        ("ends so-", "(see below)"),
        ("ends so-", ""),
        ("__", "init"),
        ("-", "item"),
    ],
)
def test_what_is_no_broken_word(above: str, below: str) -> None:
    assert joined(above, below) is None


def test_the_document_knows_better() -> None:
    assert joined("an e-", "mail arrives", "send an e-mail to us") == "an e-mail|arrives"
    assert joined("an e-", "mail arrives", "send an email to us") == "an email|arrives"
    assert joined("a well-", "being of", "the wellbeing of all") == "a wellbeing|of"


def test_two_words_the_document_uses_alone_are_a_compound() -> None:
    document = ("every crate has a shelf", "no crate without a shelf")
    assert joined("a crate-", "shelf list", *document) == "a crate-shelf|list"


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_character_but_the_hyphen_and_blanks_gets_lost(above: str, below: str) -> None:
    result = join_across(above, below, Vocabulary([above, below]))
    if result is not None:
        before = "".join((above + below).split()).replace("-", "").replace("\u2010", "")
        after = "".join("".join(result).split()).replace("-", "").replace("\u2010", "")
        assert before == after
