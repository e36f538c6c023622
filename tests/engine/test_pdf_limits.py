"""PDFs that hang, explode or are broken on purpose, through the engine: each costs itself and nothing else."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from support import pdfs, raw_pdf
from support.engines import Recorder, found, running_engine
from support.raw_pdf import FONT, RESOURCES, TEXT, page, pdf, stream

pytestmark = pytest.mark.xdist_group("isolate")

# What a person can make something of: no name of an exception, no "could not be read" alone.
REASON = re.compile(
    r"not a PDF|empty file, not a PDF|no text \(scanned\?\)|no readable text: its fonts .*|encrypted: .*"
    r"|damaged: (?:it ends too early|its structure is broken|its page tree is missing|it has no pages"
    r"|parts of its object table are broken|a part of its page tree is missing or broken)"
)
HEALTHY = "Trains arrive at noon."


def healthy(folder: Path) -> None:
    folder.mkdir()
    (folder / "note.md").write_text(f"# Note\n\n{HEALTHY}\n")
    (folder / "ledger.pdf").write_bytes(pdf({4: page(5), 5: stream(TEXT)}, [4]))


def doubling(levels: int) -> bytes:
    """A page that draws a form twice, which draws the next one twice, and so on; the last has no letters to keep."""
    forms = {
        6 + level: stream(
            b"/Fm Do /Fm Do",
            b"/Type /XObject /Subtype /Form /BBox [0 0 600 800]"
            b" /Resources << /XObject << /Fm %d 0 R >> >>" % (7 + level),
        )
        for level in range(levels)
    }
    last = stream(b"q Q", b"/Type /XObject /Subtype /Form /BBox [0 0 600 800] " + RESOURCES)
    resources = b"/Resources << /XObject << /Fm 6 0 R >> >>"
    return pdf({4: page(5, resources), 5: stream(b"/Fm Do"), **forms, 6 + levels: last}, [4])


@pytest.mark.timeout(400)
def test_what_breaks_a_limit_is_stopped_told_and_left_until_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "docs"
    healthy(folder)
    (folder / "endless.pdf").write_bytes(doubling(40))
    (folder / "huge.pdf").write_bytes(pdf({4: page(5), 5: raw_pdf.bomb(600)}, [4]))
    expected = {
        "endless.pdf": "took longer than 6 s to read",
        "huge.pdf": "needed more than 256 MB of memory to read",
    }
    with running_engine(tmp_path / "index", pdf_seconds=6.0, pdf_memory_mb=256) as engine:
        for _ in range(2):
            report = engine.index_root(str(folder), reporter=Recorder())
            assert {Path(path).name: reason for path, reason in report.skipped} == expected
            assert "The ledger is kept for seven years." in found(engine, "ledger")
        for name in expected:
            assert sum(f"file={name} " in line for line in caplog.messages) == 1
        for name in expected:
            (folder / name).write_bytes(pdfs.of_lines([f"The file {name} is mended.", *pdfs.PROSE]))
        report = engine.index_root(str(folder), reporter=Recorder())
        assert (report.new, report.skipped) == (2, ())


def hostile() -> dict[str, bytes]:
    generator = random.Random(4)
    prose = pdfs.of_lines(pdfs.PROSE, pdfs.PROSE)
    fonts = b" ".join(
        b"/G%d << /Type /Font /Subtype /Type1 /BaseFont /Font%d >>" % (n, n) for n in range(300)
    )
    letters = b" ".join(b"/G%d 12 Tf (a) Tj" % n for n in range(300))
    cases = {f"cut-{tenth}": prose[: len(prose) * tenth // 10] for tenth in range(10)}
    for number in range(12):
        flipped = bytearray(prose)
        for _ in range(1 << (number % 6)):
            flipped[generator.randrange(len(flipped))] = generator.randrange(256)
        cases[f"flip-{number}"] = bytes(flipped)
    return cases | {
        "fonts": pdf(
            {
                4: page(5, b"/Resources << /Font << %s >> >>" % fonts),
                5: stream(b"BT 60 700 Td " + letters + b" ET"),
            },
            [4],
        ),
        "giant": pdf({4: page(5).replace(b"[0 0 600 800]", b"[-9e9 0 1e38 1e38]"), 5: stream(TEXT)}, [4]),
        "nested": pdf({4: page(5), 5: stream(b"[" * 20_000 + b"<< /a " * 20_000)}, [4]),
        "brackets": b"%PDF-1.4\n" + b"[" * 200_000,
        "zeros": b"%PDF-1.4\n" + bytes(100_000),
        "roots": b"%PDF-1.4\n" + b"trailer << /Root 1 0 R >>\n" * 2_000,
        "itself": pdf({4: page(5), 5: stream(TEXT), 6: b"6 0 R"}, [4, 6]),
        "picture": b"\x89PNG\r\n\x1a\n" + bytes(1000),
        "font": pdf({3: FONT.replace(b"Type1", b"Type0"), 4: page(5), 5: stream(TEXT)}, [4]),
    }


@pytest.mark.timeout(400)
def test_a_folder_of_hostile_files_is_read_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    healthy(folder)
    cases = hostile()
    for name, source in cases.items():
        (folder / f"{name}.pdf").write_bytes(source)
    with running_engine(tmp_path / "index") as engine:
        report = engine.index_root(str(folder), reporter=Recorder())
        skipped = {Path(path).stem: reason for path, reason in report.skipped}
        assert {reason for reason in skipped.values() if not REASON.fullmatch(reason)} == set()
        assert report.new == len(cases) + 2 - len(skipped)
        for _, warning in report.warnings:
            assert warning.startswith(("damaged: ", "no text on page", "unreadable text on page")) or (
                "unreadable characters left out" in warning
            )
        for words in (HEALTHY, "The ledger is kept for seven years."):
            assert any(words in text for text in found(engine, words))
        assert engine.status().errors == ()
        again = engine.index_root(str(folder), reporter=Recorder())
        assert (again.new, again.updated, again.skipped) == (0, 0, report.skipped)
