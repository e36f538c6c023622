"""Suffix to parser: the one way from a file's bytes to a Document."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from functools import cache, partial

from copilotd.errors import ParseError, ReaderStopped
from copilotd.ingest.asciidoc import AsciiDocParser
from copilotd.ingest.docx import DocxParser
from copilotd.ingest.html import HtmlParser
from copilotd.ingest.isolate import OnPages, parse_isolated
from copilotd.ingest.markdown import MarkdownParser, MdxParser
from copilotd.ingest.notebook import NotebookParser
from copilotd.ingest.org import OrgParser
from copilotd.ingest.pdf import PdfParser
from copilotd.ingest.pdf_ocr import Ocr
from copilotd.ingest.plain import PlainTextParser
from copilotd.ingest.rst import RstParser
from copilotd.text import printable
from copilotd.types import Document, Parser

PDF_SECONDS = 120.0
PDF_MEMORY_BYTES = 2048 * 1024 * 1024

_PARSERS: tuple[Parser, ...] = (
    MarkdownParser(),
    MdxParser(),
    RstParser(),
    AsciiDocParser(),
    OrgParser(),
    HtmlParser(),
    NotebookParser(),
    PlainTextParser(),
    PdfParser(),
    DocxParser(),
)
PARSERS_FINGERPRINT = ",".join(f"{parser.name}={parser.version}" for parser in _PARSERS)


@cache
def _by_suffix() -> dict[str, Parser]:
    return {suffix: parser for parser in _PARSERS for suffix in parser.suffixes}


def supported_suffixes() -> tuple[str, ...]:
    """Returns the suffixes that have a parser, lower-case with their dot."""
    return tuple(_by_suffix())


def parser_for(path: str) -> Parser | None:
    """Returns the parser for a file name, or None where its suffix is not supported."""
    return _by_suffix().get(_split(path)[1].lower())


def _split(path: str) -> tuple[str, str]:
    """Splits a file's name from its suffix, which may have two parts, as ``.rst.inc`` has."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    first, second = os.path.splitext(stem)
    return (first, second + suffix) if (second + suffix).lower() in _by_suffix() else (stem, suffix)


def doc_title_of(path: str) -> str:
    """Returns the file's name without suffix, safe to show."""
    stem = _split(path)[0]
    return printable(stem, keep_newlines=False).strip() or "untitled"


def parse_file(
    path: str,
    source: bytes,
    *,
    seconds: float = PDF_SECONDS,
    memory_bytes: int = PDF_MEMORY_BYTES,
    ocr: Ocr | None = None,
    on_pages: OnPages | None = None,
) -> Document:
    """Parses the content of a file; what may hang or explode runs in a child process.

    Args:
        path: The file's path; its suffix chooses the parser and its name is the doc_title.
        source: The file's bytes.
        seconds: Time limit of a child process.
        memory_bytes: Memory limit of a child process.
        ocr: How PDF pages without text are read; None leaves them out.
        on_pages: Told now and then how many pages of a PDF are read, and of how many.

    Raises:
        ParseError: The file cannot be read; the message is the reason. NoText where a PDF has no
            text of its own and OCR gave none.
    """
    parser = parser_for(path)
    if parser is None:
        raise ParseError(f"no parser for {os.path.splitext(path)[1] or 'files without a suffix'}")
    title = doc_title_of(path)
    if parser.isolated:
        read = partial(
            parse_isolated, parser.name, source, title, memory_bytes=memory_bytes, on_pages=on_pages
        )
        if ocr is None or parser.name != PdfParser.name:
            return read(seconds=seconds)
        try:
            return read(seconds=seconds + ocr.seconds, options={"ocr": asdict(ocr)})
        except ReaderStopped as error:
            # What can be read without OCR must not be lost by switching it on.
            note = f"read without OCR, which failed: {error.message}"
        document = read(seconds=seconds)
        return replace(document, warnings=(*document.warnings, note))
    try:
        return parser.parse(source, title)
    except ParseError:
        raise
    except Exception as error:  # a parser's mistake costs one document, never the run
        raise ParseError(f"could not be read ({type(error).__name__}: {error})") from error
