from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copilotd.ingest.pdf_layout import Glyph, glyph, read_page

WIDTH, HEIGHT = 600.0, 800.0


def set_text(
    text: str, *, x: float = 50, top: float = 100, size: float = 10, advance: float = 5
) -> list[Glyph]:
    """Glyphs of equal width, one after the other as they look on the page."""
    return [
        glyph(character, x + advance * i, x + advance * (i + 1), top, top + size)
        for i, character in enumerate(text)
    ]


def lines(*glyphs: list[Glyph]) -> list[str]:
    page = read_page(1, WIDTH, HEIGHT, [g for run in glyphs for g in run])
    return [line.text for line in page.lines]


def test_order_of_the_file_does_not_matter() -> None:
    assert lines(set_text("second", top=120), set_text("first")[::-1]) == ["first", "second"]


def test_a_gap_is_a_blank() -> None:
    assert lines(set_text("two"), set_text("words", x=50 + 15 + 3)) == ["two words"]


@pytest.mark.parametrize(
    ("shown", "read"),
    [
        ("םולש", "שלום"),
        ("42 קרפ", "פרק 42"),
        ("(אב) 12", "12 (בא)"),
        ("see םולש here", "see שלום here"),
        ("plain (text) 42", "plain (text) 42"),
    ],
)
def test_right_to_left_text_is_put_in_reading_order(shown: str, read: str) -> None:
    assert lines(set_text(shown)) == [read]


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ("ﬁle", "file"),
        ("oﬃce", "office"),
        ("x²", "x²"),
        ("a\xa0b", "a b"),
        ("soft\xad", "soft-"),
    ],
)
def test_characters_become_what_a_reader_sees(stored: str, read: str) -> None:
    assert lines(set_text(stored)) == [read]


def test_invisible_and_control_characters_are_dropped() -> None:
    assert lines([glyph("a\u200bb\u202ec\x1b", 50, 65, 100, 110)]) == ["abc"]


def test_unknown_characters_are_counted_and_left_out() -> None:
    run = set_text("ab#cd")
    run[2] = run[2]._replace(text="(cid:7)")
    page = read_page(1, WIDTH, HEIGHT, run)
    assert (page.lines[0].text, page.unreadable, page.readable) == ("ab cd", 1, 4)


def test_an_unknown_character_in_front_of_a_line_is_its_bullet() -> None:
    bullet = [glyph("(cid:127)", 50, 54, 100, 110)]
    assert lines(bullet, set_text("Check the oil", x=62)) == ["• Check the oil"]


def test_glyphs_without_width_are_no_doubles() -> None:
    run = [glyph(character, 50, 50, 100, 110) for character in "committee"]
    assert lines(run) == ["committee"]


def test_what_lies_off_the_page_is_not_on_it() -> None:
    assert lines(set_text("hidden", top=-60), set_text("shown"), set_text("out", x=900)) == ["shown"]


coordinates = st.floats(-50, 900, allow_nan=False)
glyphs = st.builds(
    lambda text, x, y, width, height, turn: glyph(text, x, x + width, y, y + height, "F", turn),
    st.text(min_size=1, max_size=2),
    coordinates,
    coordinates,
    st.floats(0, 40),
    st.floats(0, 40),
    st.sampled_from([0, 0, 0, 1, 2, 3, None]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(glyphs, max_size=60))
def test_any_glyphs_make_clean_lines(found: list[Glyph]) -> None:
    for line in read_page(1, WIDTH, HEIGHT, found).lines:
        assert line.text == line.text.strip() != ""
        assert "\n" not in line.text
        assert "(cid:" not in line.text
