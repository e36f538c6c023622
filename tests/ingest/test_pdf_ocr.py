from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import pdfs
from support.fake_tesseract import FakeTesseract, hocr

from copilotd.errors import NoText, ParseError
from copilotd.ingest import isolate
from copilotd.ingest.parse import parse_file
from copilotd.ingest.pdf_ocr import Ocr, find_ocr
from copilotd.types import Document


@pytest.fixture
def tesseract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTesseract]:
    """A fake program, first on PATH."""
    fake = FakeTesseract(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    yield fake
    isolate.close()


def picture(canvas: Any) -> None:
    canvas.rect(100, 100, 200, 50, fill=1)


def words(lines: list[str] | tuple[str, ...]) -> Any:
    return lambda canvas: pdfs.write(canvas, lines)


def read(source: bytes, ocr: Ocr | None, seconds: float = 60) -> Document:
    return parse_file("scan.pdf", source, seconds=seconds, ocr=ocr)


def reason(source: bytes, ocr: Ocr | None) -> str:
    with pytest.raises(NoText) as caught:
        read(source, ocr)
    return caught.value.message


MIXED = pdfs.drawn(words(pdfs.PROSE), picture, words(["The last page is about trains."]))
SCAN = pdfs.drawn(picture)


def test_empty_pages_of_a_mixed_file_are_read_in_their_place(tesseract: FakeTesseract) -> None:
    tesseract.reads(hocr("Ships leave in the evening and", "take what was packed."))
    document = read(MIXED, find_ocr("eng"))
    assert document.pages is not None
    on_page_2 = [
        line
        for line, page in zip(document.text.split("\n"), document.pages, strict=True)
        if page == 2 and line
    ]
    assert on_page_2 == ["Ships leave in the evening and", "take what was packed."]
    assert document.scanned == (2,)
    assert document.warnings == ("page 2 read by OCR",)
    assert len(tesseract.calls.read_text().splitlines()) == 1


def test_it_gets_bare_pixels_and_the_language(tesseract: FakeTesseract) -> None:
    tesseract.reads(hocr("Words"))
    read(SCAN, find_ocr("eng+deu"))
    arguments = tesseract.calls.read_text().split()
    assert arguments[:4] == ["stdin", "stdout", "-l", "eng+deu"]
    header, pixels = tesseract.picture.read_bytes().split(b" 255\n", 1)
    kind, width, height = header.split()
    assert kind == b"P5"
    assert len(pixels) == int(width) * int(height)
    assert int(width) == pytest.approx(pdfs.PAGE_WIDTH * 300 / 72, abs=2)


def test_a_huge_page_is_drawn_coarser(tesseract: FakeTesseract) -> None:
    tesseract.reads(hocr("Words"))
    huge = SCAN.replace(b"/MediaBox [ 0 0 595.2756 841.8898 ]", b"/MediaBox [ 0 0 14000.00 14400.00 ]")
    assert huge != SCAN
    read(huge, find_ocr("eng"))
    assert tesseract.picture.stat().st_size < 19_000_000


def test_blank_pages_cost_no_call(tesseract: FakeTesseract) -> None:
    document = read(pdfs.of_lines(pdfs.PROSE, [], []), find_ocr("eng"))
    assert document.warnings == ("no text on pages 2-3 (scanned or blank)",)
    assert document.scanned == (2, 3)
    assert not tesseract.calls.exists()


def test_text_whose_font_nobody_can_read_is_read_from_its_picture(tesseract: FakeTesseract) -> None:
    tesseract.reads(hocr("Now it can be read"))
    [path] = (Path(__file__).parents[1] / "fixtures" / "pdf").glob("pdf09*.pdf")
    assert read(path.read_bytes(), find_ocr("eng")).text == "Now it can be read"


def test_what_the_program_doubts_is_left_out(tesseract: FakeTesseract) -> None:
    tesseract.reads(hocr("~ |l1 :;", confidence=12))
    assert reason(SCAN, find_ocr("eng")) == "no text (scanned?); OCR found none"


def test_off_it_is_not_asked(tesseract: FakeTesseract) -> None:
    assert reason(SCAN, None) == "no text (scanned?)"
    assert not tesseract.calls.exists()


def test_the_reason_names_the_package_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ocr = find_ocr("eng")
    monkeypatch.undo()
    expected = "OCR is on, but tesseract is not installed"
    assert reason(SCAN, ocr).startswith(f"no text (scanned?); {expected}")
    assert "install tesseract" in reason(SCAN, ocr)
    mixed = read(MIXED, ocr)
    assert [warning for warning in mixed.warnings if expected in warning]


def test_the_reason_names_the_language_that_is_missing(tesseract: FakeTesseract) -> None:
    assert "lacks the language fra" in reason(SCAN, find_ocr("eng+fra"))
    assert not tesseract.calls.exists()


def test_what_could_change_the_reading_changes_the_fingerprint(
    tesseract: FakeTesseract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {find_ocr("eng").fingerprint, find_ocr("deu").fingerprint, find_ocr("fra").fingerprint}
    assert len(seen) == 3
    assert find_ocr("eng", 5).fingerprint in seen


def test_a_failing_program_costs_its_pages_only(tesseract: FakeTesseract) -> None:
    tesseract.fails()
    assert reason(SCAN, find_ocr("eng")) == "no text (scanned?); OCR failed"
    document = read(MIXED, find_ocr("eng"))
    assert "OCR failed (page 2)" in document.warnings
    assert document.text.startswith(pdfs.PROSE[0])


def test_a_hung_program_is_stopped_and_the_text_is_kept(tesseract: FakeTesseract) -> None:
    tesseract.hangs()
    document = read(pdfs.drawn(words(pdfs.PROSE), picture, picture), find_ocr("eng", 1.0))
    assert document.text == "\n".join(pdfs.PROSE)
    assert document.warnings[-2:] == ("OCR took longer than 1 s (page 2)", "OCR stopped after 1 s (page 3)")


def test_no_program_outlives_the_reader_that_started_it(tesseract: FakeTesseract) -> None:
    tesseract.hangs()
    options = {"ocr": {"tool": str(tesseract.folder / "tesseract"), "language": "eng", "seconds": 600}}
    with pytest.raises(ParseError):
        isolate.parse_isolated("pdf", SCAN, "scan", seconds=30, memory_bytes=1 << 30, options=options)
    assert ended(int(tesseract.pid.read_text()))


def ended(pid: int) -> bool:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
@pytest.mark.timeout(900)
def test_a_real_scan_is_read_as_the_page_it_shows() -> None:
    def draw(canvas: Any) -> None:
        pdfs.write(canvas, ["Warehouse handbook"], size=22)
        pdfs.write(canvas, pdfs.PROSE, top=140)

    ocr = find_ocr("eng")
    if ocr.problem:
        pytest.skip(ocr.problem)
    document = read(pdfs.scanned(pdfs.drawn(draw)), ocr, seconds=600)
    assert document.text.split("\n") == ["Warehouse handbook", "", *pdfs.PROSE]
    assert [section.heading for section in document.sections] == ["Warehouse handbook"]
    assert document.scanned == (1,)
