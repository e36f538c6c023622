"""A model's thinking and our key are taken out of its words, however these are cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.llm.scrub import Secret, Thinking

KEY = "sk-sk-sk-0123456789"


def passed(make: Callable[[], Thinking | Secret], pieces: list[str]) -> str:
    scrub = make()
    return "".join(map(scrub.feed, pieces)) + scrub.close()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("<think>hm [A]</think>\n\nSo [A].", "So [A]."),
        ("\n<THINK>hm</Think> So.", "So."),
        ("<think>a</think><thinking>b</thinking>So.", "So."),
        ("<think></think>So <think>stays</think>.", "So <think>stays</think>."),
        ("<think>never ended", ""),
        ("<thin ice>", "<thin ice>"),
        ("<thi", "<thi"),
        ("  So.", "  So."),
        ("", ""),
    ],
)
def test_thinking_at_the_beginning_is_dropped(said: str, expected: str) -> None:
    assert passed(Thinking, [said]) == passed(Thinking, list(said)) == expected


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "think", ">", "/", " ", "\n", "x", "<reasoning>"])),
    st.lists(st.integers(1, 5), max_size=40),
)
def test_how_thinking_is_cut_makes_no_difference(parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts)
    assert passed(Thinking, split(text, cuts)) == passed(Thinking, [text])


@given(
    st.lists(st.sampled_from([KEY, KEY[:3], KEY[:9], KEY[9:], "x", " "])),
    st.lists(st.integers(1, 9), max_size=40),
)
def test_the_key_is_never_shown(parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts)
    shown = passed(lambda: Secret(KEY), split(text, cuts))
    assert shown == text.replace(KEY, "***")


def test_a_word_that_serves_as_a_key_stays_a_word() -> None:
    assert passed(lambda: Secret("ollama"), ["Use ollama."]) == "Use ollama."


def split(text: str, cuts: list[int]) -> list[str]:
    pieces = []
    for cut in cuts:
        pieces.append(text[:cut])
        text = text[cut:]
    return [*pieces, text]
