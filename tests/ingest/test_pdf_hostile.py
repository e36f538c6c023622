"""PDFs that ask for too much: each costs itself, and is told by what it did."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from support import pdfs
from support.raw_pdf import RESOURCES, TEXT, bomb, page, pdf, stream

from copilotd.errors import ParseError
from copilotd.ingest.isolate import parse_isolated
from copilotd.ingest.pdf import PdfParser
from copilotd.types import Document

LITTLE_MEMORY = 200 << 20


def isolated(source: bytes, *, memory_bytes: int = LITTLE_MEMORY, seconds: float = 60) -> Document:
    return parse_isolated("pdf", source, "hostile", seconds=seconds, memory_bytes=memory_bytes)


def reason(source: bytes, **limits: Any) -> str:
    with pytest.raises(ParseError) as caught:
        isolated(source, **limits)
    return caught.value.message


@pytest.mark.timeout(300)
def test_a_page_that_unpacks_without_end_is_too_large_not_damaged() -> None:
    assert reason(pdf({4: page(5), 5: bomb(300)}, [4])) == "needed more than 200 MB of memory to read"


@pytest.mark.timeout(300)
def test_one_such_page_costs_the_others_nothing() -> None:
    source = pdf({4: page(5), 5: bomb(300), 6: page(7), 7: stream(TEXT)}, [4, 6])
    document = isolated(source)
    assert document.text == "The ledger is kept for seven years."
    assert document.pages == (2,)
    assert document.warnings == ("damaged: page 1 could not be read (it needs too much memory)",)


@pytest.mark.timeout(300)
def test_a_second_such_page_ends_the_file() -> None:
    source = pdf({4: page(5), 5: bomb(300), 6: page(7), 7: bomb(300), 8: page(9), 9: stream(TEXT)}, [4, 6, 8])
    assert reason(source) == "needed more than 200 MB of memory to read"


@pytest.mark.timeout(300)
def test_a_table_of_objects_that_unpacks_without_end_is_too_large() -> None:
    entries = b"/Type /XRef /Size 4 /W [1 4 2] /Root 1 0 R"
    table = bomb(300).replace(b"<<", b"<< " + entries, 1)
    body = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n"
    source = body + b"2 0 obj\n" + table + b"\nendobj\nstartxref\n%d\n%%%%EOF\n" % len(body)
    assert reason(source) == "needed more than 200 MB of memory to read"


def test_a_huge_picture_is_never_unpacked() -> None:
    picture = bomb(300).replace(
        b"<<", b"<< /Type /XObject /Subtype /Image /Width 20000 /Height 20000 /BitsPerComponent 8", 1
    )
    resources = b"/Resources << /Font << /F1 3 0 R >> /XObject << /Im 6 0 R >> >>"
    source = pdf({4: page(5, resources), 5: stream(b"q /Im Do Q " + TEXT), 6: picture}, [4])
    assert isolated(source).text == "The ledger is kept for seven years."


def test_lines_and_curves_are_not_kept() -> None:
    drawing = b"0 0 m 10 10 l S 5 5 20 20 re f\n" * 20_000
    document = PdfParser().parse(pdf({4: page(5), 5: stream(drawing + TEXT)}, [4]), "plot")
    assert document.text == "The ledger is kept for seven years."


def test_a_form_that_draws_itself_is_drawn_once() -> None:
    form = stream(
        b"/Fm Do " + TEXT,
        b"/Type /XObject /Subtype /Form /BBox [0 0 600 800]"
        b" /Resources << /Font << /F1 3 0 R >> /XObject << /Fm 6 0 R >> >>",
    )
    source = pdf(
        {4: page(5, b"/Resources << /XObject << /Fm 6 0 R >> >>"), 5: stream(b"/Fm Do"), 6: form}, [4]
    )
    assert isolated(source).text == "The ledger is kept for seven years."


def test_a_page_tree_that_holds_itself_gives_each_page_once() -> None:
    source = pdf({4: page(5), 5: stream(TEXT)}, [4, 2, 4])
    assert isolated(source).text == "The ledger is kept for seven years."


@pytest.mark.parametrize("depth", [20, 3_000])
def test_a_page_tree_may_be_thousands_deep(depth: int) -> None:
    tree = {6 + n: b"<< /Type /Pages /Count 1 /Kids [%d 0 R] >>" % (7 + n) for n in range(depth)}
    source = pdf({4: page(5), 5: stream(TEXT), **tree, 6 + depth: page(5)}, [6])
    document = isolated(source)
    assert document.text == "The ledger is kept for seven years."
    assert document.warnings == ()


def test_what_a_page_does_not_say_it_has_from_the_tree_above() -> None:
    inner = b"<< /Type /Pages /Parent 2 0 R /Count 1 /Kids [5 0 R] /MediaBox [0 0 600 800] >>"
    outer = b"<< /Type /Pages /Parent 2 0 R /Count 1 /Kids [4 0 R] /MediaBox [0 0 10 10] %s >>" % RESOURCES
    bare = b"<< /Type /Page /Parent 4 0 R /Contents 6 0 R >>"
    document = isolated(pdf({4: inner, 5: bare, 6: stream(TEXT), 7: outer}, [7]))
    assert (document.text, document.warnings) == ("The ledger is kept for seven years.", ())


@pytest.mark.parametrize("kid", [b"null", b"(no page)", b"[4 0 R]", b"42"])
def test_a_broken_kid_costs_the_pages_beside_it_nothing(kid: bytes) -> None:
    document = isolated(pdf({4: page(5), 5: stream(TEXT), 6: kid}, [6, 4]))
    assert document.text == "The ledger is kept for seven years."
    assert any("page" in warning for warning in document.warnings)


BOXES = [
    b"[0 0 0 0]", b"[0 0 1]", b"[/a /b /c /d]", b"[[0] [0] [600] [800]]", b"4 0 R", b"<< >>", b"(x)",
    b"[0 0 " + b"9" * 400 + b" 800]", b"[0 0 99999999999 99999999999]",
]  # fmt: skip


@pytest.mark.parametrize("box", BOXES)
def test_a_page_of_a_size_that_makes_no_sense_is_read_as_a_letter(box: bytes) -> None:
    source = pdf({4: page(5).replace(b"[0 0 600 800]", box), 5: stream(TEXT)}, [4])
    document = isolated(source)
    assert document.text == "The ledger is kept for seven years."
    assert document.warnings == ("damaged: page 1 without a size, read as US Letter",)


LOOP = {6: b"7 0 R", 7: b"6 0 R"}
LOOPING = {
    "rotation": pdf({4: page(5).replace(b"/Parent", b"/Rotate 6 0 R /Parent"), 5: stream(TEXT), **LOOP}, [4]),
    "second page": pdf({4: page(5), 5: stream(TEXT), **LOOP}, [4, 6]),
    "size": pdf({4: page(5).replace(b"[0 0 600 800]", b"6 0 R"), 5: stream(TEXT), **LOOP}, [4]),
    "part of the contents": pdf(
        {4: page(5).replace(b"5 0 R", b"[6 0 R 5 0 R]"), 5: stream(TEXT), **LOOP}, [4]
    ),
    "outline": pdf({4: page(5), 5: stream(TEXT), **LOOP}, [4], b"/Outlines 6 0 R"),
}


@pytest.mark.parametrize("name", LOOPING)
def test_references_that_lead_in_a_circle_lead_nowhere(name: str) -> None:
    assert PdfParser().parse(LOOPING[name], "circle").text == "The ledger is kept for seven years."


def test_nesting_without_end_is_no_crash() -> None:
    deep = b"[" * 50_000 + b"]" * 50_000
    assert (
        isolated(pdf({4: page(5), 5: stream(deep + TEXT)}, [4])).text == "The ledger is kept for seven years."
    )
    assert reason(pdf({4: page(5).replace(b"5 0 R", deep)}, [4])) == "no text (scanned?)"


def test_an_outline_that_loops_is_left_at_its_first_round() -> None:
    outline = {
        6: b"<< /Type /Outlines /First 7 0 R /Last 8 0 R >>",
        7: b"<< /Title (One) /Dest [4 0 R /Fit] /Parent 6 0 R /Next 8 0 R /First 7 0 R >>",
        8: b"<< /Title (Two) /Dest [4 0 R /Fit] /Parent 6 0 R /Next 7 0 R /First 6 0 R >>",
    }
    source = pdf({4: page(5), 5: stream(TEXT), **outline}, [4], b"/Outlines 6 0 R")
    assert isolated(source).text == "The ledger is kept for seven years."


def test_a_hundred_thousand_objects_are_read_within_the_limits() -> None:
    crumbs = {6 + n: b"<< /N %d >>" % n for n in range(100_000)}
    source = pdf({4: page(5), 5: stream(TEXT), **crumbs}, [4])
    assert isolated(source).text == "The ledger is kept for seven years."


def test_corners_of_a_page_may_be_given_in_any_order() -> None:
    turned = page(5).replace(b"[0 0 600 800]", b"[0 800 600 0]")
    document = isolated(pdf({4: turned, 5: stream(TEXT)}, [4]))
    assert document.text == "The ledger is kept for seven years."


def test_pages_are_let_go_as_they_are_read() -> None:
    from pdfminer.pdftypes import PDFStream

    source = pdfs.of_lines(*[[f"Page {number}", *pdfs.PROSE] for number in range(30)])
    unpacked: list[int] = []

    def count(done: int, total: int) -> None:
        if done % 10 == 0:
            gc.collect()
            streams = (thing for thing in gc.get_objects() if isinstance(thing, PDFStream))
            unpacked.append(sum(1 for thing in streams if thing.data is not None))

    parser = PdfParser()
    parser.on_page = count
    assert parser.parse(source, "long").pages is not None
    assert len(unpacked) == 3
    assert max(unpacked) <= 2
