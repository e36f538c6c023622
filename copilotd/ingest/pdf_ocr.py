"""OCR of PDF pages without text: pdfium draws the page, ``tesseract`` reads the picture.

Runs where PDFs are parsed, in the child process with its limits. The program gets bare pixels on its
stdin, never the file, and belongs to the child's process group, so that it is stopped with it.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from copilotd.ingest.hocr import RecognisedWord, recognised_words
from copilotd.ingest.pdf_layout import Glyph, PageText, glyph, pages_named, read_page

DEFAULT_SECONDS = 1800.0
LANGUAGE = re.compile(r"[A-Za-z0-9_]+(?:\+[A-Za-z0-9_]+)*")
_TOOL = "tesseract"
_DPI = 300
# A3 at 300 dpi; larger pages are drawn coarser.
_MAX_PIXELS = 18_000_000
_MAX_SIDE = 32_000
_PAGE_SECONDS = 600.0
# Below this a word is a speck of dust, and a page a photograph.
_WORD_CONFIDENCE = 30.0
_PAGE_CONFIDENCE = 50.0
_SAME_SIZE = 0.2


@dataclass(frozen=True, slots=True)
class Ocr:
    """How pages without text are to be read.

    Attributes:
        tool: Path of ``tesseract``; empty where there is none.
        language: Its languages, joined by ``+``.
        seconds: The most that may be spent on one file.
        problem: Why it can't be done; a sentence's end for a skip reason.
    """

    tool: str
    language: str
    seconds: float = DEFAULT_SECONDS
    problem: str = ""

    @property
    def fingerprint(self) -> str:
        """Changes whenever a page without text could be read in another way."""
        return f"missing:{self.language}" if self.problem else f"{_TOOL}:{self.language}"


def find_ocr(language: str, seconds: float = DEFAULT_SECONDS) -> Ocr:
    """Looks for ``tesseract`` and its languages on this machine.

    Args:
        language: Three-letter codes as tesseract names them, joined by ``+``.
        seconds: The most that may be spent on one file.
    """
    tool = shutil.which(_TOOL)
    if tool is None:
        install = f"brew install {_TOOL}" if sys.platform == "darwin" else f"apt install {_TOOL}-ocr"
        return Ocr("", language, seconds, f"OCR is on, but {_TOOL} is not installed ({install})")
    try:
        listed = subprocess.run(
            [tool, "--list-langs"], capture_output=True, timeout=20, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return Ocr("", language, seconds, f"OCR is on, but {_TOOL} does not run")
    known = (listed.stdout + listed.stderr).decode("utf-8", "replace").split()
    missing = [name for name in language.split("+") if name not in known]
    if missing:
        package = missing[0].replace("_", "-")
        install = (
            f"brew install {_TOOL}-lang" if sys.platform == "darwin" else f"apt install {_TOOL}-ocr-{package}"
        )
        return Ocr(
            "", language, seconds, f"OCR is on, but {_TOOL} lacks the language {missing[0]} ({install})"
        )
    return Ocr(tool, language, seconds)


class Recogniser:
    """Reads pages of one file by OCR.

    Args:
        ocr: How.
        source: The file's bytes.
    """

    def __init__(self, ocr: Ocr, source: bytes) -> None:
        self._ocr = ocr
        self._source = source
        self._pdf: Any = None
        self._left = ocr.seconds
        self._read: list[int] = []
        self._problems: dict[str, list[int]] = {}
        self._sizes: list[float] = []
        self._asked = False

    def page(self, number: int, pages: int) -> PageText | None:
        """Reads a page.

        Args:
            number: 1-based.
            pages: How many the file has; pdfium must find as many for their numbers to be exact.

        Returns:
            What stands on it; None where nothing was read.
        """
        self._asked = True
        if self._ocr.problem:
            return None
        if self._left <= 0:
            self._note(f"OCR stopped after {self._ocr.seconds:g} s", number)
            return None
        started = time.monotonic()
        try:
            text = self._recognised(number, pages)
        except _Failed as failure:
            self._note(str(failure), number)
            return None
        finally:
            self._left -= time.monotonic() - started
        if text is not None:
            self._read.append(number)
        return text

    def notes(self) -> list[str]:
        """Returns what a reader should know: pages read so, and pages that could not be."""
        notes = [f"{pages_named(self._read)} read by OCR"] if self._read else []
        if self._asked and self._ocr.problem:
            notes.append(self._ocr.problem)
        return notes + [f"{problem} ({pages_named(numbers)})" for problem, numbers in self._problems.items()]

    def verdict(self) -> str:
        """Says why a file has no text even so."""
        if self._ocr.problem:
            return self._ocr.problem
        return next(iter(self._problems), "OCR found none")

    def _note(self, problem: str, number: int) -> None:
        self._problems.setdefault(problem, []).append(number)

    def _recognised(self, number: int, pages: int) -> PageText | None:
        import pypdfium2

        try:
            if self._pdf is None:
                self._pdf = pypdfium2.PdfDocument(self._source)
            if len(self._pdf) != pages:
                raise _Failed("OCR finds other pages than the reader")
            page = self._pdf[number - 1]
            try:
                width, height = page.get_size()
                picture = _picture(page, width, height)
            finally:
                page.close()
        except pypdfium2.PdfiumError:
            raise _Failed("OCR can't draw the page") from None
        if picture is None:
            return None
        words = _trusted(recognised_words(self._run(picture)))
        scale = width / picture.width
        words = self._even(words, scale)
        text = read_page(number, width, height, (g for word in words for g in _glyphs(word)))
        return text if text.lines else None

    def _even(self, words: list[RecognisedWord], scale: float) -> list[RecognisedWord]:
        """Turns pixels to points, and sizes that are nearly the same into one.

        Tesseract measures each line by the letters it happens to have, so that two lines of one font
        differ by a tenth and more; a heading would be seen in the larger.
        """
        lengths: Counter[float] = Counter()
        for word in words:
            lengths[word.size * scale] += len(word.text)
        for size, _ in lengths.most_common():
            if not any(abs(size - known) <= _SAME_SIZE * known for known in self._sizes):
                self._sizes.append(size)
        return [
            word.scaled(scale, min(self._sizes, key=lambda known: abs(known - word.size * scale)))
            for word in words
        ]

    def _run(self, picture: _Picture) -> str:
        command = [
            self._ocr.tool, "stdin", "stdout", "-l", self._ocr.language, "--dpi", str(picture.dpi),
            "--psm", "1", "-c", "tessedit_create_hocr=1",
        ]  # fmt: skip
        limit = max(1.0, min(_PAGE_SECONDS, self._left))
        try:
            done = subprocess.run(command, input=picture.pnm, capture_output=True, timeout=limit, check=True)
        except subprocess.TimeoutExpired:
            raise _Failed(f"OCR took longer than {limit:.0f} s") from None
        except (OSError, subprocess.SubprocessError):
            raise _Failed("OCR failed") from None
        return done.stdout.decode("utf-8", "replace")


class _Failed(Exception):
    """A page could not be recognised; the message is a note for the reader."""


@dataclass(frozen=True, slots=True)
class _Picture:
    width: int
    dpi: int
    pnm: bytes


def _picture(page: Any, width: float, height: float) -> _Picture | None:
    """Draws a page in shades of grey; None where there is nothing to see."""
    import pypdfium2

    if not (0 < width < math.inf and 0 < height < math.inf) or not pypdfium2.raw.FPDFPage_CountObjects(page):
        return None
    scale = min(_DPI / 72, math.sqrt(_MAX_PIXELS / (width * height)), _MAX_SIDE / width, _MAX_SIDE / height)
    bitmap = page.render(scale=scale, grayscale=True, may_draw_forms=False)
    try:
        stride, columns, rows = bitmap.stride, bitmap.width, bitmap.height
        pixels = bytes(bitmap.buffer)
    finally:
        bitmap.close()
    if stride != columns:
        pixels = b"".join(pixels[row * stride : row * stride + columns] for row in range(rows))
    if pixels.count(pixels[:1]) == len(pixels):
        return None
    return _Picture(columns, max(70, round(scale * 72)), b"P5 %d %d 255\n%b" % (columns, rows, pixels))


def _trusted(words: list[RecognisedWord]) -> list[RecognisedWord]:
    """Leaves out what is noise: words tesseract itself doubts, and whole pages of them."""
    letters = sum(len(word.text) for word in words)
    confidence = sum(len(word.text) * word.confidence for word in words) / max(1, letters)
    if confidence < _PAGE_CONFIDENCE:
        return []
    return [word for word in words if word.confidence >= _WORD_CONFIDENCE]


def _glyphs(word: RecognisedWord) -> list[Glyph]:
    """Spreads a word's characters over its box, which is all the layout needs to know."""
    count = len(word.text)
    x0, x1, top, bottom = word.x0, word.x1, word.top, word.bottom
    glyphs = []
    for index, character in enumerate(word.text):
        begin, end = index / count, (index + 1) / count
        if word.turn == 2:
            begin, end = 1 - end, 1 - begin
        if word.turn % 2 == 0:
            left, right = x0 + begin * (x1 - x0), x0 + end * (x1 - x0)
            glyphs.append(glyph(character, left, right, top, bottom, turn=word.turn))
            continue
        # Turned clockwise a word runs downwards, the other way upwards.
        if word.turn == 3:
            begin, end = 1 - end, 1 - begin
        upper, lower = top + begin * (bottom - top), top + end * (bottom - top)
        glyphs.append(glyph(character, x0, x1, upper, lower, turn=word.turn))
    return glyphs
