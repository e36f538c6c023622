"""Runs every PDF below some folders through the isolated reader, as the daemon does, and says how each ended.

    python benchmarks/pdf_collection.py DIR...
    python benchmarks/pdf_collection.py --long [PAGES]

Prints how many are indexed or skipped with which reason, the slowest, and the most memory a reader took (Linux).
Exits 1 where a reader crashed, hung or ran out of memory, or a reason says nothing. ``--long`` makes a PDF of so
many dense pages (500) and reads it within 500 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from copilotd.errors import ParseError, ReaderStopped
from copilotd.ingest import isolate
from copilotd.ingest.parse import PDF_MEMORY_BYTES, PDF_SECONDS, parse_file

LONG_MEMORY_BYTES = 500 << 20
_SHOWN = 5
# Names of Python's errors and lone words are no reasons.
_UNSPECIFIC = re.compile(r"Error\b|Exception\b|^\W*\w*\W*$|its reader|could not be read \(")


@dataclass(frozen=True, slots=True)
class Ending:
    """How one file ended.

    Attributes:
        path: The file.
        reason: Why it is skipped; empty where it is indexed.
        seconds: Wall clock.
        peak_bytes: The most memory its reader had; 0 where the system doesn't say.
        bad: Whether its reader was stopped or the reason is unspecific.
        characters: Of its text.
        warnings: What a reader of it should know.
    """

    path: Path
    reason: str
    seconds: float
    peak_bytes: int
    bad: bool
    characters: int = 0
    warnings: tuple[str, ...] = ()


def read(path: Path, *, seconds: float = PDF_SECONDS, memory_bytes: int = PDF_MEMORY_BYTES) -> Ending:
    """Reads one file."""
    source = path.read_bytes()
    _forget_peak()
    started = time.monotonic()
    try:
        document = parse_file(path.name, source, seconds=seconds, memory_bytes=memory_bytes)
    except ParseError as error:
        bad = isinstance(error, ReaderStopped) or bool(_UNSPECIFIC.search(error.message))
        return Ending(path, error.message, time.monotonic() - started, peak_bytes(), bad)
    spent = time.monotonic() - started
    bad = any(_UNSPECIFIC.search(warning) for warning in document.warnings)
    return Ending(path, "", spent, peak_bytes(), bad, len(document.text), document.warnings)


def peak_bytes() -> int:
    """Returns the most memory the reader has had since it was forgotten; 0 where the system doesn't say."""
    for pid in isolate.idle_children():
        with contextlib.suppress(OSError, ValueError):
            lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
    return 0


def _forget_peak() -> None:
    for pid in isolate.idle_children():
        with contextlib.suppress(OSError):
            # proc(5): 5 sets the peak to what the process has now.
            Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def report(endings: list[Ending]) -> int:
    """Prints the table; returns the exit code."""
    indexed = [ending for ending in endings if not ending.reason]
    warned = sum(1 for ending in indexed if ending.warnings)
    print(f"{len(endings)} files, {len(indexed)} indexed ({warned} with a note)")
    for reason, number in Counter(ending.reason for ending in endings if ending.reason).most_common():
        print(f"{number:>5}  skipped: {reason}")
    for title, key in (("slowest", lambda e: e.seconds), ("most memory", lambda e: e.peak_bytes)):
        print(f"{title}:")
        for ending in sorted(endings, key=key, reverse=True)[:_SHOWN]:
            print(f"  {ending.seconds:>7.1f} s  {ending.peak_bytes / 1e6:>6.0f} MB  {ending.path.name}")
    bad = [ending for ending in endings if ending.bad]
    for ending in bad:
        print(f"BAD  {ending.path}: {ending.reason or '; '.join(ending.warnings)}")
    return 1 if bad else 0


def long_pdf(pages: int) -> bytes:
    """Makes a PDF of dense pages, with some 5,000 characters each."""
    from reportlab.lib.pagesizes import A4
    from reportlab.pdfgen.canvas import Canvas

    file = io.BytesIO()
    canvas = Canvas(file, pagesize=A4, invariant=1)
    for page in range(1, pages + 1):
        canvas.setFont("Helvetica", 8)
        for line in range(80):
            words = " ".join(f"word{(page * 7919 + line * 104729 + k * 31) % 9973}" for k in range(8))
            canvas.drawString(40, A4[1] - 40 - 9.5 * line, f"Page {page} line {line}: {words}")
        canvas.showPage()
    canvas.save()
    return file.getvalue()


def measure_long(pages: int) -> int:
    """Reads a long PDF within LONG_MEMORY_BYTES and prints what it took."""
    source = long_pdf(pages)
    told: list[tuple[int, int]] = []
    isolate.close()
    started = time.monotonic()
    try:
        document = parse_file(
            "long.pdf",
            source,
            seconds=3600,
            memory_bytes=LONG_MEMORY_BYTES,
            on_pages=lambda done, total: told.append((done, total)),
        )
    except ParseError as error:
        print(f"skipped: {error.message}")
        return 1
    spent = time.monotonic() - started
    print(
        f"{pages} pages, {len(source) / 1e6:.1f} MB, {len(document.text):,} characters: {spent:.0f} s, "
        f"{pages / spent:.1f} pages/s, at most {peak_bytes() / 1e6:.0f} MB, told {len(told)} times"
    )
    return 0 if set(document.pages or ()) == set(range(1, pages + 1)) else 1


def main() -> int:
    """Reads the folders of the command line."""
    parser = argparse.ArgumentParser(description="Reads collections of PDFs as the daemon does.")
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--long", nargs="?", type=int, const=500, default=0, metavar="PAGES")
    parser.add_argument("--seconds", type=float, default=PDF_SECONDS, help="time limit of a file")
    arguments = parser.parse_args()
    if arguments.long:
        return measure_long(arguments.long)
    paths = sorted(path for folder in arguments.folders for path in folder.rglob("*.pdf") if path.is_file())
    endings = []
    for path in paths:
        ending = read(path, seconds=arguments.seconds)
        endings.append(ending)
        print(f"{ending.seconds:>7.1f} s  {path.name}: {ending.reason or ending.characters}", file=sys.stderr)
    return report(endings)


if __name__ == "__main__":
    sys.exit(main())
