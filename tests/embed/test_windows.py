"""Windows: every token of a chunk is in one, none is too long, and nothing depends on the path."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copilotd.embed.models import BUNDLED_NAME, locate_model
from copilotd.embed.windows import PREFIX_TOKENS, WindowPlanner, estimate_tokens, make_planner

MODEL = locate_model(BUNDLED_NAME)
REAL = make_planner(MODEL.fingerprint, MODEL.folder)
SMALL = WindowPlanner("m", estimate_tokens, 24)

TEXTS = st.text(st.sampled_from("abc Ω漢\n\t.-_'`"), max_size=600) | st.text(max_size=300)


@pytest.mark.parametrize("planner", [REAL, SMALL], ids=["real", "estimate"])
@settings(max_examples=150, deadline=None)
@given(text=TEXTS, title=st.text(max_size=40), headings=st.lists(st.text(max_size=30), max_size=4))
def test_no_token_goes_unembedded(planner: WindowPlanner, text: str, title: str, headings: list[str]) -> None:
    windows = planner.plan(text, title=title, heading_path=tuple(headings))
    covered: set[int] = set()
    for before, window in zip([None, *windows], windows, strict=False):
        assert window.start == (before.end if before else 0)
        assert window.start < window.end
        assert window.embedded_text.endswith(text[window.start : window.end].strip())
        covered.update(range(window.start, window.end))
    for start, end in planner.tokenize(text):
        assert start == end or start in covered


@settings(max_examples=100, deadline=None)
@given(text=TEXTS, headings=st.lists(st.text(max_size=200), max_size=6))
def test_no_window_is_longer_than_the_model_reads(text: str, headings: list[str]) -> None:
    for window in REAL.plan(text, title="", heading_path=tuple(headings)):
        assert len(REAL.tokenize(window.embedded_text)) <= 254


def test_windows_are_cut_at_line_ends_and_of_like_length() -> None:
    text = "\n".join(f"Line {number} has some words in it." for number in range(60))
    windows = SMALL.plan(text, title="", heading_path=())
    assert all(text[window.end - 1] == "\n" for window in windows[:-1])
    lengths = [window.end - window.start for window in windows[:-1]]
    assert max(lengths) <= 2 * min(lengths)


def test_one_enormous_word_is_cut_all_the_same() -> None:
    text = "x" * 5000
    windows = SMALL.plan(text, title="", heading_path=())
    assert "".join(text[window.start : window.end] for window in windows) == text


def test_title_and_headings_come_first_and_the_title_only_once() -> None:
    [window] = SMALL.plan("Words.", title="Guide", heading_path=("Guide", "Install"))
    assert window.embedded_text == "Guide > Install\nWords."
    [window] = SMALL.plan("Words.", title="Guide", heading_path=("Install",))
    assert window.embedded_text == "Guide > Install\nWords."
    [window] = SMALL.plan("Words.", title="", heading_path=())
    assert window.embedded_text == "Words."


def test_a_table_header_is_repeated_in_each_window() -> None:
    rows = "\n".join(f"| part {number} | torque |" for number in range(40))
    windows = SMALL.plan(rows, title="", heading_path=(), context="| Part | Nm |")
    assert len(windows) > 1
    assert all(window.embedded_text.startswith("| Part | Nm |\n") for window in windows)


def test_a_prefix_longer_than_its_share_is_cut() -> None:
    [window] = REAL.plan("Words.", title="", heading_path=("very " * 500,))
    assert len(REAL.tokenize(window.embedded_text)) <= PREFIX_TOKENS + 2
    assert window.embedded_text.endswith("\nWords.")


def test_equal_text_has_one_key_and_another_model_another() -> None:
    [one] = SMALL.plan("Words.", title="T", heading_path=())
    [two] = SMALL.plan("Words.", title="T", heading_path=())
    [other] = WindowPlanner("n", estimate_tokens, 24).plan("Words.", title="T", heading_path=())
    assert one.key == two.key != other.key
    assert SMALL.fingerprint != WindowPlanner("m", estimate_tokens, 30).fingerprint


def test_text_without_words_has_no_window() -> None:
    assert SMALL.plan("", title="T", heading_path=()) == []
    assert SMALL.plan(" \n\t", title="T", heading_path=()) == []


def test_lone_surrogates_do_no_harm() -> None:
    [window] = REAL.plan("caf\udce9 latte", title="", heading_path=())
    assert window.start == 0
