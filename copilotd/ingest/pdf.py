"""PDF to Document: the one module that knows pdfplumber.

Pages are read one by one and released at once; what a page looks like is worked out in
:mod:`copilotd.ingest.pdf_layout`, what the whole document says in
:mod:`copilotd.ingest.pdf_structure`. Parsing runs in a child process with limits
(:mod:`copilotd.ingest.isolate`), because a PDF may take any time and any memory.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from copilotd.errors import NoText, ParseError
from copilotd.ingest.chunk import DEFAULT_CHUNK_OVERLAP_CHARS, DEFAULT_MAX_CHUNK_CHARS, chunk_document
from copilotd.ingest.isolate import parse_isolated
from copilotd.ingest.pdf_headings import Bookmark
from copilotd.ingest.pdf_layout import PageText
from copilotd.ingest.pdf_ocr import Ocr, Recogniser
from copilotd.ingest.pdf_repair import rebuilt
from copilotd.ingest.pdf_structure import build_document
from copilotd.text import one_line, printable
from copilotd.types import ChunkMetadata, Document

_log = logging.getLogger(__name__)

MAX_PAGES = 20_000
_SECONDS = 120.0
_MEMORY_BYTES = 2048 * 1024 * 1024
_REPAIRED = "its object table was rebuilt"


class PdfParser:
    """Parser for ``.pdf``; see :class:`copilotd.types.Parser`.

    Args:
        ocr: Fields of an :class:`~copilotd.ingest.pdf_ocr.Ocr`, to read pages without text by it.

    Attributes:
        on_page: Told how many pages are read, and of how many, after each.
    """

    name = "pdf"
    version = 5
    suffixes: tuple[str, ...] = (".pdf",)
    isolated = True

    def __init__(self, ocr: Mapping[str, Any] | None = None) -> None:
        self.on_page: Callable[[int, int], None] = lambda done, total: None
        self._ocr = None if ocr is None else Ocr(**ocr)

    def parse(self, source: bytes, doc_title: str) -> Document:
        """Parses ``source``.

        Raises:
            ParseError: Its message is the skip reason: "encrypted: …", "no text (scanned?)",
                "not a PDF", "damaged: …" and their like.
        """
        if not source:
            raise ParseError("empty file, not a PDF")
        # Readers accept a header within the first kilobyte (PDF 32000-1, annex H.3.4.1).
        if b"%PDF-" not in source[:1024]:
            raise ParseError("not a PDF")
        logging.getLogger("pdfminer").setLevel(logging.CRITICAL)
        logging.getLogger("pdfplumber").setLevel(logging.CRITICAL)
        recogniser = None if self._ocr is None else Recogniser(self._ocr, source)
        pages, bookmarks, info_title, warnings, scanned = _read(source, _Means(recogniser, self.on_page))
        try:
            document = build_document(doc_title, pages, bookmarks, info_title, warnings)
        except NoText as error:
            if recogniser is None:
                raise
            raise NoText(f"{error.message}; {recogniser.verdict()}") from None
        notes = () if recogniser is None else recogniser.notes()
        return replace(document, warnings=(*document.warnings, *notes), scanned=tuple(scanned))


def pdf_chunk_with_heading_detection(filepath: str) -> list[tuple[str, ChunkMetadata]]:
    """Reads a PDF into chunks with their headings and pages.

    Args:
        filepath: Path of a ``.pdf`` file.

    Returns:
        The chunks' texts with their metadata; nothing, and a warning in the log that names the
        file, where it is encrypted, damaged or has no text.
    """
    with open(filepath, "rb") as file:
        source = file.read()
        modified = os.fstat(file.fileno()).st_mtime
    name = printable(os.path.basename(filepath), keep_newlines=False)
    try:
        document = parse_isolated(
            PdfParser.name, source, os.path.splitext(name)[0], seconds=_SECONDS, memory_bytes=_MEMORY_BYTES
        )
    except ParseError as error:
        _log.warning("%s skipped: %s", name, error.message)
        return []
    for warning in document.warnings:
        _log.warning("%s: %s", name, warning)
    chunks = chunk_document(
        document,
        source_file=os.path.abspath(filepath),
        relative_path=os.path.basename(filepath),
        last_modified=modified,
        max_chars=DEFAULT_MAX_CHUNK_CHARS,
        overlap_chars=DEFAULT_CHUNK_OVERLAP_CHARS,
    )
    return [(document.text[chunk.start : chunk.end], chunk.metadata) for chunk in chunks]


@dataclass(frozen=True, slots=True)
class _Means:
    """What a file is read with: OCR where that is on, and whom to tell of each page."""

    recogniser: Recogniser | None
    on_page: Callable[[int, int], None]


_Reading = tuple[list[PageText], list[Bookmark], str, list[str], list[int]]


class _Opened:
    """An open file with its pages found but not yet read."""

    def __init__(self, source: bytes) -> None:
        """Opens ``source``.

        Raises:
            ParseError: It cannot be opened, or has too many pages.
        """
        import pdfplumber
        from pdfminer.pdfdocument import PDFEncryptionError, PDFPasswordIncorrect

        from copilotd.ingest.pdf_pages import page_objects
        from copilotd.ingest.pdf_references import end_loops

        self.problems: list[str] = []
        self.pages: list[Any] = []
        with _heard("pdfminer.pdfdocument") as messages:
            try:
                self.pdf = pdfplumber.open(io.BytesIO(source), password="")
            except Exception as error:
                cause = _cause(error)
                if isinstance(cause, MemoryError):
                    raise cause from None
                if isinstance(cause, PDFPasswordIncorrect):
                    raise ParseError("encrypted: needs a password") from None
                if isinstance(cause, PDFEncryptionError):
                    raise ParseError("encrypted: in a way this reader does not know") from None
                raise ParseError(f"damaged: {_reason(cause)}") from None
            end_loops(self.pdf.doc)
            try:
                for page in page_objects(self.pdf.doc, self.problems):
                    self.pages.append(page)
                    if len(self.pages) > MAX_PAGES:
                        raise ParseError(f"too many pages: more than {MAX_PAGES:,}")
            except (MemoryError, ParseError):
                raise
            except Exception as error:
                self.problems.append(_reason(error))
        if messages or _was_scanned(self.pdf):
            self.problems.append("parts of its object table are broken")
        self.promised = _promised_pages(self.pdf)

    @property
    def complete(self) -> bool:
        """Whether the page tree was there and every page it promises."""
        return 0 < self.promised <= len(self.pages)

    def read(self, means: _Means) -> _Reading:
        """Reads all pages, each released before the next.

        Raises:
            ParseError: No page could be read.
        """
        from copilotd.ingest.pdf_bookmarks import bookmarks
        from copilotd.ingest.pdf_glyphs import read_page_object

        texts: list[PageText] = []
        failed: list[int] = []
        unsized: list[int] = []
        scanned: list[int] = []
        ids: dict[Any, int] = {}
        reason = ""
        out_of_memory: MemoryError | None = None
        for number, page in enumerate(self.pages, start=1):
            ids[page.pageid] = number
            if page.attrs.get("MediaBox") is None:
                unsized.append(number)
            try:
                text = read_page_object(self.pdf, page, number)
            except MemoryError as error:
                # One page that unpacks without end costs itself; a second means the file is like that.
                if out_of_memory is not None:
                    raise
                out_of_memory = error.with_traceback(None)
                failed.append(number)
                reason = reason or "it needs too much memory"
            except Exception as error:
                failed.append(number)
                reason = reason or _reason(error)
            else:
                if not text.lines or text.is_unreadable:
                    scanned.append(number)
                    if means.recogniser is not None:
                        text = means.recogniser.page(number, len(self.pages)) or text
                texts.append(text)
            means.on_page(number, len(self.pages))
        if not texts:
            if out_of_memory is not None:
                raise out_of_memory
            raise ParseError(f"damaged: {reason or [*self.problems, 'it has no pages'][0]}")
        notes = [f"damaged: {problem}" for problem in self.problems]
        if unsized:
            notes.append(f"damaged: {_page_list(unsized)} without a size, read as US Letter")
        if failed:
            notes.append(f"damaged: {_page_list(failed)} could not be read ({reason})")
        if len(self.pages) < self.promised:
            notes.append(f"damaged: {len(self.pages)} of {self.promised} pages could be found")
        return texts, bookmarks(self.pdf.doc, ids), _info_title(self.pdf), notes, scanned


def _read(source: bytes, means: _Means) -> _Reading:
    """Reads the file as it is and, where that fails or pages are missing, by looking for its objects."""
    opened: _Opened | None = None
    failure: ParseError | None = None
    try:
        opened = _Opened(source)
        if opened.complete:
            return opened.read(means)
    except ParseError as error:
        failure = error
        if not error.message.startswith("damaged"):
            raise
    reading = _read_rebuilt(source, means, more_than=len(opened.pages) if opened and not failure else 0)
    if reading is not None:
        return reading
    if opened is not None and failure is None:
        return opened.read(means)
    raise failure or ParseError("damaged: no page could be read")


def _read_rebuilt(source: bytes, means: _Means, more_than: int) -> _Reading | None:
    """Reads the file through a new object table; None where that finds no more than was known."""
    whole = rebuilt(source)
    if whole is None:
        return None
    try:
        opened = _Opened(whole)
        if len(opened.pages) <= more_than:
            return None
        opened.problems = [_REPAIRED]
        reading = opened.read(means)
    except ParseError:
        return None
    return reading if any(page.lines for page in reading[0]) else None


@contextlib.contextmanager
def _heard(name: str) -> Iterator[list[str]]:
    """Collects what a library's logger warns of, which is all it says of damage it steps over."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(name)
    propagate, level = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)


def _was_scanned(pdf: Any) -> bool:
    from pdfminer.pdfdocument import PDFXRefFallback

    return any(isinstance(xref, PDFXRefFallback) for xref in pdf.doc.xrefs)


def _promised_pages(pdf: Any) -> int:
    from pdfminer.pdftypes import resolve1

    try:
        count = resolve1(resolve1(pdf.doc.catalog.get("Pages")).get("Count"))
    except MemoryError:
        raise
    except Exception:
        return 0
    return count if isinstance(count, int) and 0 < count <= MAX_PAGES else 0


def _info_title(pdf: Any) -> str:
    title = pdf.metadata.get("Title", "")
    return one_line(title, 300) if isinstance(title, str) else ""


def _cause(error: BaseException) -> BaseException:
    """Returns what pdfplumber has wrapped, which may be running out of memory."""
    while error.args and isinstance(error.args[0], BaseException):
        error = error.args[0]
    return error


def _reason(error: BaseException) -> str:
    error = _cause(error)
    if isinstance(error, RecursionError):
        return "its parts are nested too deep, or refer to themselves"
    if isinstance(error, EOFError) or "EOF" in type(error).__name__ + str(error):
        return "it ends too early"
    if "/Root" in str(error):
        return "its page tree is missing"
    return "its structure is broken"


def _page_list(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:8])
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return f"page{'s' if len(numbers) > 1 else ''} {shown}{more}"
