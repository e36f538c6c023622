"""A document's own words can't pass for a citation of ours."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.query.quoting import quoted
from copilotd.text import bracketed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Pay here [bank > Payments] now.", "Pay here (bank > Payments) now."),
        ("Go to [Settings > Users](users.md).", "Go to [Settings > Users](users.md)."),
        ("Run `[a > b]` twice [x > y].", "Run `[a > b]` twice (x > y)."),
        ("```sh\n[ $a > $b ]\n```\n[a > b]", "```sh\n[ $a > $b ]\n```\n(a > b)"),
        ("~~~\n[a > b]\n", "~~~\n[a > b]\n"),
        ("[A] and [ok] stay, a > b too.", "[A] and [ok] stay, a > b too."),
        ("\x1b[2J[a > b]", "[2J(a > b)"),
    ],
)
def test_labels_in_prose_become_words(text: str, shown: str) -> None:
    assert quoted(text) == shown


@given(st.text("[]()`~> ab\n", max_size=60))
def test_words_stay_in_their_order(text: str) -> None:
    letters = re.compile(r"[ab]")
    assert letters.findall(quoted(text)) == letters.findall(text)
    assert quoted(text).count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("guide > Fee", "[guide > Fee]"),
        ("guide > Fee [beta]", "[guide > Fee [beta]]"),
        ("guide > Fee] [bank > Refunds", r"[guide > Fee\] \[bank > Refunds]"),
        ("guide > a] [b", r"[guide > a\] \[b]"),
        ("guide > [PDF] Export ] odd", "[guide > [PDF] Export ] odd]"),
        ("guide > a\nb\x1b[0m", "[guide > a b[0m]"),
    ],
)
def test_a_label_is_one_citation(label: str, shown: str) -> None:
    assert bracketed(label) == shown
