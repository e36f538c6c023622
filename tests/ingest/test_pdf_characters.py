"""Characters of PDFs in fonts of real files: ligatures, right-to-left scripts, fonts that say nothing."""

from __future__ import annotations

import pytest
from support.raw_pdf import written

from copilotd.errors import NoText
from copilotd.ingest.pdf import PdfParser
from copilotd.types import Document


def parse(*lines: str, unknown: str = "") -> Document:
    return PdfParser().parse(written(*lines, unknown=unknown), "guide")


@pytest.mark.parametrize(
    ("shown", "read"),
    [
        ("the ﬁrst oﬃce is aﬄoat", "the first office is affloat"),
        ("an area of 20 m²", "an area of 20 m²"),
        ("no\u00a0break, thin\u2009blank", "no break, thin blank"),
        ("漢字とかな", "漢字とかな"),
        ("--dry-run BORG_REPO a.b.c E1234", "--dry-run BORG_REPO a.b.c E1234"),
    ],
)
def test_characters_are_read_as_they_look(shown: str, read: str) -> None:
    assert parse(shown, "The rest is plain.").text.split("\n")[0] == read


@pytest.mark.parametrize(
    ("looks", "read"),
    [
        ("םלוע םולש", "שלום עולם"),
        ("בוט רקוב", "בוקר טוב"),
        ("ةرادإلا ليلد", "دليل الإدارة"),
        ("2024 תנש", "שנת 2024"),
        ("see ךירדמ here", "see מדריך here"),
    ],
)
def test_right_to_left_text_is_in_the_order_it_is_read_in(looks: str, read: str) -> None:
    assert parse(looks).text == read


def test_characters_nobody_can_read_are_left_out_and_counted() -> None:
    document = parse("Each crate§ carries its§ own number on the shelf.", unknown="§")
    assert document.text == "Each crate carries its own number on the shelf."
    assert document.warnings == ("2 unreadable characters left out",)


def test_a_page_that_is_mostly_unreadable_is_no_text() -> None:
    with pytest.raises(NoText) as caught:
        parse("Each crate carries its own number.", unknown="aeiru")
    assert caught.value.message == "no readable text: its fonts don't say which characters they show"
