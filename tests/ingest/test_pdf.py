from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reportlab.lib.pdfencrypt import StandardEncryption
from support import pdfs
from support.shared import SHARED, needs_shared

from copilotd.errors import ParseError
from copilotd.ingest.isolate import parse_isolated
from copilotd.ingest.pdf import PdfParser, pdf_chunk_with_heading_detection
from copilotd.types import BlockKind, Document, Parser

FIXTURES = Path(__file__).parents[1] / "fixtures" / "pdf"
ANYTIME = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def parse(source: bytes, doc_title: str = "guide") -> Document:
    document = PdfParser().parse(source, doc_title)
    assert_sound(document)
    return document


def case(name: str) -> bytes:
    [path] = FIXTURES.glob(f"{name}*.pdf")
    return path.read_bytes()


def assert_sound(document: Document) -> None:
    """Whatever the file: places, sections and blocks fit the text."""
    text = document.text
    assert text.strip()
    assert document.pages is not None
    assert len(document.line_numbers) == len(document.pages) == text.count("\n") + 1
    assert all(a < b for a, b in pairwise(document.line_numbers))
    assert all(a <= b for a, b in pairwise(document.pages))
    assert document.sections[0].start == 0
    assert document.sections[-1].end == len(text)
    assert all(a.end == b.start for a, b in pairwise(document.sections))
    uncovered, position = "", 0
    for block in document.blocks:
        assert position <= block.start <= block.header_end <= block.end
        assert block.start == 0 or text[block.start - 1] == "\n"
        uncovered += text[position : block.start]
        position = block.end
    assert not (uncovered + text[position:]).strip()


def headings(document: Document) -> list[str]:
    return [section.heading for section in document.sections]


def reason(source: bytes) -> str:
    with pytest.raises(ParseError) as caught:
        PdfParser().parse(source, "guide")
    return caught.value.message


def test_it_is_an_isolated_parser() -> None:
    parser: Parser = PdfParser()
    assert parser.isolated
    assert parser.suffixes == (".pdf",)


# ------------------------------------------------------------------------------ reported failures


def test_pdf_08_letter_spaced_text_is_read_as_words() -> None:
    assert parse(case("pdf08")).text == "Common bile duct margin report"


def test_pdf_08_blanks_between_letters_are_tracking() -> None:
    spelled = "   ".join(" ".join(word) for word in ("Quarterly", "harvest", "report"))
    assert parse(pdfs.of_lines([spelled])).text == "Quarterly harvest report"


def test_pdf_09_text_nobody_can_read_is_not_indexed() -> None:
    assert reason(case("pdf09")).startswith("no readable text")


def test_pdf_12_fake_bold_is_read_once() -> None:
    assert parse(case("pdf12")).text == "Statement of harvest totals\nPlain body line about apples."


def test_pdf_13_real_double_letters_stay() -> None:
    expected = "Staff offered efficient bookkeeping\nAddress: 55 Mill Street, kiln 1100"
    assert parse(case("pdf13")).text == expected


@pytest.mark.parametrize("shift", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("size", [6, 11, 30])
def test_fake_bold_of_any_size_and_shift(size: int, shift: float) -> None:
    def draw(canvas: Any) -> None:
        for offset in (0.0, shift * size / 11):
            pdfs.write(canvas, ["Illinois hill bell 1100 iii lll ..."], x=40 + offset, size=size)

    assert parse(pdfs.drawn(draw)).text == "Illinois hill bell 1100 iii lll ..."


def test_pdf_14_rotated_pages_and_sideways_text() -> None:
    document = parse(case("pdf14"))
    assert document.text.split("\n\n") == [
        "Upright line token rot-00",
        "Sideways licence text token rot-90\nsecond sideways line",
        "Landscape table page\nRow one has 12 crates\nRow two has 15 crates",
    ]
    assert document.pages is not None
    assert document.pages[-1] == 2


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_text_of_every_direction_is_read_forwards(angle: int) -> None:
    def draw(canvas: Any) -> None:
        pdfs.write(canvas, pdfs.PROSE)
        canvas.translate(pdfs.PAGE_WIDTH / 2, pdfs.PAGE_HEIGHT / 2)
        canvas.rotate(angle)
        canvas.drawString(0, 0, "Turned words on the margin")
        canvas.drawString(0, -14, "and a second line of them")

    text = parse(pdfs.drawn(draw)).text
    assert text.startswith(pdfs.PROSE[0])
    assert "Turned words on the margin\nand a second line of them" in text


def test_a_slanted_watermark_is_left_out() -> None:
    def draw(canvas: Any) -> None:
        pdfs.write(canvas, pdfs.PROSE)
        canvas.translate(100, 300)
        canvas.rotate(45)
        canvas.setFont("Helvetica", 70)
        canvas.drawString(0, 0, "CONFIDENTIAL")

    assert parse(pdfs.drawn(draw)).text == "\n".join(pdfs.PROSE)


@needs_shared
@pytest.mark.shared
@pytest.mark.timeout(900)
def test_pdf_16_memory_does_not_grow_with_the_pages() -> None:
    source = (SHARED / "cases" / "files" / "pdf16_many_pages.pdf").read_bytes()
    document = parse_isolated("pdf", source, "many", seconds=300, memory_bytes=200 << 20)
    assert document.pages is not None
    assert sorted(set(document.pages)) == list(range(1, 401))


@pytest.mark.parametrize("name", ["pdf18", "pdf19_trailer_nul", "pdf19_bad_xref", "pdf19_startxref_none"])
def test_pdf_18_and_19_a_broken_object_table_is_rebuilt_and_said(name: str) -> None:
    document = parse(case(name))
    assert document.text == "Loop in the xref chain token prev-18"
    assert any(warning.startswith("damaged: ") for warning in document.warnings)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pdf19_truncated", "damaged: it ends too early"),
        ("pdf19_zero_bytes", "empty file, not a PDF"),
        ("pdf19_html_named", "not a PDF"),
    ],
)
def test_pdf_19_what_cannot_be_read_has_a_short_reason(name: str, expected: str) -> None:
    assert reason(case(name)) == expected


def test_pdf_19_a_page_without_a_size_is_read() -> None:
    document = parse(case("pdf19_no_mediabox"))
    assert document.text == "No media box token nomb-19"
    assert document.warnings == ("damaged: page 1 without a size, read as US Letter",)


def test_pdf_20_all_four_pages_are_found() -> None:
    document = parse(case("pdf20"))
    assert document.text.split("\n\n") == [
        "Page one sec-A",
        "Page two sec-A",
        "Page three sec-B",
        "Page four sec-B",
    ]
    assert document.warnings == ("damaged: its object table was rebuilt",)


def test_pdf_20_missing_pages_are_said() -> None:
    source = pdfs.of_lines(["One page of text."]).replace(b"/Count 1", b"/Count 3")
    assert parse(source).warnings == ("damaged: 1 of 3 pages could be found",)


def test_pdf_22_hyphens_at_line_ends() -> None:
    text = parse(case("pdf22")).text
    words = text.split()
    for word in ("information", "remarkable", "well-known", "state-of-the-art", "AB-120"):
        assert word in words
    assert "capabilities." in words
    assert text.startswith("Power users rely on the information\npanel, which")


def test_pdf_23_a_page_with_one_line_keeps_it() -> None:
    document = parse(case("pdf23"))
    assert document.text == "The answer is sixteen lamps."
    assert headings(document) == ["Page 1"]


def test_pdf_24_private_use_bullets_become_bullets() -> None:
    assert parse(case("pdf24")).text == "• Check the oil"


# ------------------------------------------------------------------------------------- encryption


def locked(user_password: str) -> bytes:
    protection = StandardEncryption(user_password, ownerPassword="owner", strength=128)
    return pdfs.drawn(lambda canvas: pdfs.write(canvas, pdfs.PROSE), encrypt=protection)


def test_an_empty_user_password_is_no_lock() -> None:
    assert parse(locked("")).text == "\n".join(pdfs.PROSE)


def test_a_password_is_asked_for() -> None:
    assert reason(locked("secret")) == "encrypted: needs a password"


def test_an_encrypted_file_is_never_read_through_a_rebuilt_table() -> None:
    broken = locked("secret").replace(b"startxref", b"startxxxx")
    assert reason(broken) in ("encrypted: needs a password", "damaged: its page tree is missing")


@pytest.mark.parametrize(
    "entries", ["/Filter /Standard /V 2 /R 3 /Length 99999999 /P -4", "/Filter /Standard"]
)
def test_a_broken_lock_inside_the_trailer_is_not_taken_off(entries: str) -> None:
    lock = f"/Encrypt << {entries} >> /ID [<00> <00>] /Root".encode()
    broken = pdfs.of_lines(pdfs.PROSE).replace(b"/Root", lock, 1)
    assert reason(broken).startswith(("encrypted: ", "damaged: "))


# ----------------------------------------------------------------------------- headings, sections


def test_the_seeds_heuristics() -> None:
    page_1 = ["INSTALLATION NOTES", *pdfs.PROSE, "", "Moving a crate", "", *pdfs.PROSE]
    document = parse(pdfs.of_lines(page_1, list(pdfs.PROSE)))
    assert headings(document) == ["INSTALLATION NOTES", "Moving a crate"]
    assert document.text[document.sections[1].start :].startswith("Moving a crate\n\n")


def test_pages_before_the_first_heading_are_named_by_number() -> None:
    document = parse(pdfs.of_lines(pdfs.PROSE, pdfs.PROSE, ["SHELVES AND AISLES", *pdfs.PROSE], pdfs.PROSE))
    assert headings(document) == ["Page 1", "Page 2", "SHELVES AND AISLES"]
    assert document.sections[1].heading_path == ("Page 2",)


@pytest.mark.parametrize(
    "line",
    [
        "The scanner is at the end of the aisle.",
        "AB-120",
        "and then the rest of the sentence",
        "Figure 3: the scanner",
        "Installation ................ 12",
        "Oil and Filters ............... MS-27",
        "Filters . . . . . . . . A.3",
        "Filters ..........",
        "• Check the oil",
    ],
)
def test_what_is_no_heading(line: str) -> None:
    document = parse(pdfs.of_lines([*pdfs.PROSE, "", line, "", *pdfs.PROSE]))
    assert headings(document) == ["Page 1"]


def test_a_notice_in_capitals_is_no_run_of_headings() -> None:
    notice = [
        "THE SOFTWARE IS PROVIDED AS IS WITHOUT",
        "WARRANTY OF ANY KIND EXPRESS OR",
        "IMPLIED AND SO ON",
    ]
    assert headings(parse(pdfs.of_lines([*pdfs.PROSE, "", *notice, "", *pdfs.PROSE]))) == ["Page 1"]


def sized(canvas: Any) -> None:
    top = pdfs.write(canvas, ["Warehouse handbook"], size=22)
    top = pdfs.write(canvas, pdfs.PROSE, top=top + 20)
    top = pdfs.write(canvas, ["1 Crates"], size=16, top=top + 20)
    top = pdfs.write(canvas, pdfs.PROSE, top=top + 10)
    top = pdfs.write(canvas, ["1.1 Weighing"], size=13, top=top + 16)
    top = pdfs.write(canvas, pdfs.PROSE, top=top + 8)
    top = pdfs.write(canvas, ["The scale"], font="Helvetica-Bold", top=top + 12)
    pdfs.write(canvas, pdfs.PROSE, top=top)


def test_size_and_weight_make_a_tree() -> None:
    document = parse(pdfs.drawn(sized))
    assert document.title == "Warehouse handbook"
    assert [section.heading_path for section in document.sections] == [
        ("Warehouse handbook",),
        ("Warehouse handbook", "1 Crates"),
        ("Warehouse handbook", "1 Crates", "1.1 Weighing"),
        ("Warehouse handbook", "1 Crates", "1.1 Weighing", "The scale"),
    ]


def test_a_heading_of_two_lines_is_one() -> None:
    def draw(canvas: Any) -> None:
        top = pdfs.write(canvas, ["How to find a crate that was", "moved by somebody else"], size=18)
        pdfs.write(canvas, pdfs.PROSE, top=top + 10)

    assert headings(parse(pdfs.drawn(draw))) == ["How to find a crate that was moved by somebody else"]


def test_bookmarks_tell_headings_that_look_like_text() -> None:
    def draw(canvas: Any, name: str, level: int) -> None:
        canvas.bookmarkPage(name)
        canvas.addOutlineEntry(name, name, level)
        pdfs.write(canvas, [name, *pdfs.PROSE, "", "Just a short line", "", *pdfs.PROSE])

    names = [("getting crates", 0), ("by train", 1), ("by ship", 1), ("sending crates", 0)]
    document = parse(pdfs.drawn(*[lambda c, n=n, level=level: draw(c, n, level) for n, level in names]))
    assert [section.heading_path for section in document.sections] == [
        ("getting crates",),
        ("getting crates", "by train"),
        ("getting crates", "by ship"),
        ("sending crates",),
    ]


def test_a_title_of_the_properties_counts_only_if_it_is_printed() -> None:
    lines = [f"warehouse notes are kept here. {pdfs.PROSE[0]}", *pdfs.PROSE[1:]]

    def draw(canvas: Any) -> None:
        pdfs.write(canvas, lines, size=9)

    assert parse(pdfs.drawn(draw, title="Warehouse Notes")).title == "Warehouse Notes"
    assert parse(pdfs.drawn(draw, title="Microsoft Word - x.doc")).title == ""


# ------------------------------------------------------------------------------- headers, columns


def framed(number: int, body: Sequence[str], header: str, footer: str) -> Any:
    def draw(canvas: Any) -> None:
        pdfs.write(canvas, [header.format(n=number)], top=40, size=9)
        pdfs.write(canvas, body)
        pdfs.write(canvas, [footer.format(n=number)], top=pdfs.PAGE_HEIGHT - 30, size=9)

    return draw


@pytest.mark.parametrize("footer", ["Page {n} of 9", "{n}", "- {n} -", "Copyright 2024 The Warehouse"])
def test_running_headers_and_footers_are_left_out(footer: str) -> None:
    pages = [framed(n, pdfs.PROSE, "Warehouse handbook", footer) for n in range(1, 4)]
    document = parse(pdfs.drawn(*pages))
    assert document.text == "\n\n".join(["\n".join(pdfs.PROSE)] * 3)


def test_page_numbers_may_start_anywhere() -> None:
    pages = [framed(n, pdfs.PROSE, "Warehouse handbook", "{n}") for n in range(41, 45)]
    assert "41" not in parse(pdfs.drawn(*pages)).text


def test_what_stands_on_two_pages_only_is_kept() -> None:
    pages = [framed(n, pdfs.PROSE, "Warehouse handbook", "{n}") for n in range(1, 3)]
    assert parse(pdfs.drawn(*pages)).text.count("Warehouse handbook") == 2


def test_first_lines_that_differ_by_more_than_the_page_are_kept() -> None:
    pages = [framed(n * n, pdfs.PROSE, "Invoice {n}", "as agreed") for n in range(1, 5)]
    text = parse(pdfs.drawn(*pages)).text
    assert "Invoice 1\n" in text
    assert "Invoice 16\n" in text


LEFT = [
    "Crates arrive by train in the",
    "morning and are put on the",
    "shelves of the first aisle by",
    "noon, where they stay until",
    "somebody asks for them again.",
]
RIGHT = [
    "Ships leave in the evening and",
    "take what was packed during the",
    "day. The harbour master signs",
    "the list and keeps one copy of",
    "it for seven years at least.",
]


@pytest.mark.parametrize("offset", [0, 3, 7])
def test_columns_are_read_one_after_the_other(offset: int) -> None:
    def draw(canvas: Any) -> None:
        pdfs.write(canvas, ["A title that stands across both columns of the whole page"], size=16)
        pdfs.write(canvas, LEFT, top=120)
        pdfs.write(canvas, RIGHT, x=320, top=120 + offset)

    text = parse(pdfs.drawn(draw)).text
    assert text.split("\n", 2)[2].split() == " ".join(LEFT + RIGHT).split()


def test_a_table_is_read_row_by_row() -> None:
    rows = [
        ("Part", "Torque", "Tool"),
        ("P-01", "14 Nm", "T20"),
        ("P-02", "35 Nm", "T30"),
        ("P-03", "9 Nm", "T10"),
    ]

    def draw(canvas: Any) -> None:
        top = pdfs.write(canvas, [*pdfs.PROSE, ""])
        for row in rows:
            for column, cell in enumerate(row):
                pdfs.write(canvas, [cell], x=60 + 150 * column, top=top)
            top += pdfs.LEADING
        pdfs.write(canvas, ["", *pdfs.PROSE], top=top)

    document = parse(pdfs.drawn(draw))
    assert "P-02  35 Nm  T30\nP-03  9 Nm  T10" in document.text
    [table] = [block for block in document.blocks if block.kind is BlockKind.TABLE]
    assert document.text[table.start : table.header_end] == "Part  Torque  Tool"
    assert document.text[table.start : table.end].count("\n") == 3


def test_code_keeps_its_indent_and_its_block() -> None:
    code = ["if ready:", "    start --dry-run", "stop"]

    def draw(canvas: Any) -> None:
        top = pdfs.write(canvas, [*pdfs.PROSE, ""])
        canvas.setFont("Courier", 11)
        for line in code:
            indent = len(line) - len(line.lstrip())
            canvas.drawString(60 + 6.6 * indent, pdfs.PAGE_HEIGHT - top, line.strip())
            top += pdfs.LEADING
        pdfs.write(canvas, ["", *pdfs.PROSE], top=top)

    document = parse(pdfs.drawn(draw))
    [block] = [block for block in document.blocks if block.kind is BlockKind.CODE]
    assert document.text[block.start : block.end] == "\n".join(code)


def test_list_items_are_blocks_of_one_group() -> None:
    document = parse(
        pdfs.of_lines(
            [*pdfs.PROSE, "", "1. Open the lid", "2. Check the oil and the", "filter", "3. Close it"]
        )
    )
    items = [block for block in document.blocks if block.kind is BlockKind.LIST_ITEM]
    assert [document.text[block.start : block.end] for block in items] == [
        "1. Open the lid",
        "2. Check the oil and the\nfilter",
        "3. Close it",
    ]
    assert len({block.group for block in items}) == 1


def test_superscripts_stay_in_their_line() -> None:
    def draw(canvas: Any) -> None:
        pdfs.write(canvas, ["An area of 20 m"])
        width = canvas.stringWidth("An area of 20 m", "Helvetica", 11)
        canvas.setFont("Helvetica", 7)
        canvas.drawString(60 + width, pdfs.PAGE_HEIGHT - 80 + 4, "2")
        pdfs.write(canvas, [" is enough."], x=60 + width + 4)

    assert parse(pdfs.drawn(draw)).text == "An area of 20 m2 is enough."


def test_pages_without_text_are_said() -> None:
    document = parse(pdfs.of_lines(pdfs.PROSE, [], [], pdfs.PROSE, []))
    assert document.warnings == ("no text on pages 2-3, 5 (scanned or blank)",)


def test_a_file_without_text_is_called_scanned() -> None:
    assert reason(pdfs.of_lines([], [])) == "no text (scanned?)"


# ------------------------------------------------------------------------- the seed's entry point


def test_chunks_carry_heading_and_page(tmp_path: Path) -> None:
    path = tmp_path / "handbook.pdf"
    path.write_bytes(pdfs.of_lines(["CRATES AND SHELVES", *pdfs.PROSE], ["SHIPS AND TRAINS", *pdfs.PROSE]))
    chunks = pdf_chunk_with_heading_detection(str(path))
    assert [(meta.doc_title, meta.section_heading, meta.page, meta.chunk_index) for _, meta in chunks] == [
        ("handbook", "CRATES AND SHELVES", 1, 0),
        ("handbook", "SHIPS AND TRAINS", 2, 1),
    ]
    for text, meta in chunks:
        assert meta.char_count == len(text)
        assert meta.source_file == str(path)
        assert meta.last_modified == path.stat().st_mtime


def test_pdf_23_one_line_is_one_chunk(tmp_path: Path) -> None:
    path = shutil.copy(FIXTURES / "pdf23_one_line.pdf", tmp_path)
    [(text, meta)] = pdf_chunk_with_heading_detection(str(path))
    assert text == "The answer is sixteen lamps."
    assert (meta.section_heading, meta.page, meta.page_end) == ("Page 1", 1, 1)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (pdfs.of_lines([]), "no text (scanned?)"),
        (locked("secret"), "encrypted: needs a password"),
        (b"", "empty file, not a PDF"),
    ],
)
def test_what_gives_no_chunks_is_logged_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, source: bytes, expected: str
) -> None:
    path = tmp_path / "minutes.pdf"
    path.write_bytes(source)
    with caplog.at_level(logging.WARNING):
        assert pdf_chunk_with_heading_detection(str(path)) == []
    assert f"minutes.pdf skipped: {expected}" in caplog.text


# -------------------------------------------------------------------------------------- any bytes


def only_parse_errors(source: bytes) -> None:
    try:
        document = PdfParser().parse(source, "any")
    except ParseError:
        return
    assert_sound(document)


@ANYTIME
@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_read_or_refused(noise: bytes, header: bool) -> None:
    only_parse_errors((b"%PDF-1.4\n" if header else b"") + noise)


SAMPLES = [case("pdf14"), case("pdf20"), case("pdf22"), locked(""), pdfs.drawn(sized)]


@ANYTIME
@given(st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    source = bytearray(data.draw(st.sampled_from(SAMPLES)))
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, len(source) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "repeat", "digit"])):
            case "flip":
                source[start] ^= data.draw(st.integers(1, 255))
            case "cut":
                del source[start : start + data.draw(st.integers(1, 60))]
            case "repeat":
                source[start:start] = source[start : start + data.draw(st.integers(1, 200))]
            case _:
                digits = [i for i, byte in enumerate(source) if 48 <= byte <= 57]
                if digits:
                    source[data.draw(st.sampled_from(digits))] = data.draw(st.integers(48, 57))
        if not source:
            break
    only_parse_errors(bytes(source))
