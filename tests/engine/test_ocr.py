from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support import pdfs
from support.engines import Recorder, found, running_engine
from support.fake_tesseract import FakeTesseract, hocr


@pytest.fixture
def tesseract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTesseract:
    """A fake program, first on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    fake = FakeTesseract(folder)
    fake.reads(hocr("The harbour master signs the list"))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return fake


def picture(canvas: Any) -> None:
    canvas.rect(100, 100, 200, 50, fill=1)


@pytest.mark.timeout(300)
def test_switching_ocr_on_reads_again_what_it_could_help_and_nothing_else(
    tmp_path: Path, tesseract: FakeTesseract
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "scan.pdf").write_bytes(pdfs.drawn(picture))
    (docs / "text.pdf").write_bytes(pdfs.of_lines(pdfs.PROSE))
    (docs / "note.md").write_text("# Note\n\nTrains arrive at noon.\n")
    index = tmp_path / "index"

    with running_engine(index) as engine:
        report = engine.index_root(str(docs), reporter=Recorder())
        assert [reason for _, reason in report.skipped] == ["no text (scanned?)"]
        assert not tesseract.calls.exists()

    with running_engine(index, ocr="on") as engine:
        report = engine.index_root(str(docs), reporter=Recorder())
        assert (report.new, report.updated, report.skipped) == (1, 0, ())
        assert found(engine, "harbour master")[0] == "The harbour master signs the list"
        [hit] = [hit for hit in report.warnings if "OCR" in hit[1]]
        assert hit[1] == "page 1 read by OCR"

    with running_engine(index, ocr="on") as engine:
        report = engine.index_root(str(docs), reporter=Recorder())
        assert (report.new, report.updated) == (0, 0)
    assert len(tesseract.calls.read_text().splitlines()) == 1

    with running_engine(index) as engine:
        report = engine.index_root(str(docs), reporter=Recorder())
        assert [reason for _, reason in report.skipped] == ["no text (scanned?)"]
        assert "The harbour master signs the list" not in found(engine, "harbour master")


@pytest.mark.timeout(300)
def test_a_tesseract_that_appears_reads_what_waited_for_it(
    tmp_path: Path, tesseract: FakeTesseract, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "scan.pdf").write_bytes(pdfs.drawn(picture))
    (docs / "mixed.pdf").write_bytes(pdfs.drawn(lambda canvas: pdfs.write(canvas, pdfs.PROSE), picture))
    (docs / "text.pdf").write_bytes(pdfs.of_lines(pdfs.PROSE))
    index = tmp_path / "index"
    path = os.environ["PATH"]

    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with running_engine(index, ocr="on") as engine:
        report = engine.index_root(str(docs), reporter=Recorder())
        [(_, reason)] = report.skipped
        assert reason.startswith("no text (scanned?); OCR is on, but tesseract is not installed (")
        [mixed] = {warning for file, warning in report.warnings if file.endswith("mixed.pdf")} - {
            "no text on page 2 (scanned or blank)"
        }
        assert mixed == reason.partition("; ")[2]

    monkeypatch.setenv("PATH", path)
    with running_engine(index, ocr="on") as engine:
        report = engine.index_root(str(docs), reporter=Recorder())
        assert (report.new, report.updated, report.skipped) == (1, 1, ())
        assert {Path(file).name: warning for file, warning in report.warnings} == {
            "scan.pdf": "page 1 read by OCR",
            "mixed.pdf": "page 2 read by OCR",
        }
