"""Document to JSON and back, for the pipe between the daemon and the child process that parses."""

from __future__ import annotations

import json
from typing import Any

from copilotd.errors import ParseError
from copilotd.types import Block, BlockKind, Document, JSONObject, Section


def document_to_json(document: Document) -> JSONObject:
    """Returns an object that :func:`document_from_json` turns back into an equal Document."""
    return {
        "doc_title": document.doc_title,
        "title": document.title,
        "text": document.text,
        "line_numbers": list(document.line_numbers),
        "sections": [
            [s.heading, s.level, list(s.heading_path), s.start, s.end, s.anchor] for s in document.sections
        ],
        "blocks": [[b.kind.value, b.start, b.end, b.group, b.header_end] for b in document.blocks],
        "pages": None if document.pages is None else list(document.pages),
        "description": document.description,
        "warnings": list(document.warnings),
        "scanned": list(document.scanned),
    }


def document_from_json(data: Any) -> Document:
    """Rebuilds a Document.

    Raises:
        ParseError: ``data`` is not what :func:`document_to_json` returns. The child that sent it
            may be under the control of the file it read.
    """
    try:
        document = Document(
            doc_title=_text(data["doc_title"]),
            title=_text(data["title"]),
            text=_text(data["text"]),
            line_numbers=_numbers(data["line_numbers"]),
            sections=tuple(
                Section(
                    _text(heading), _number(level), _texts(path), _number(start), _number(end), _text(anchor)
                )
                for heading, level, path, start, end, anchor in data["sections"]
            ),
            blocks=tuple(
                Block(BlockKind(kind), _number(start), _number(end), _number(group), _number(header_end))
                for kind, start, end, group, header_end in data["blocks"]
            ),
            pages=None if data["pages"] is None else _numbers(data["pages"]),
            description=_text(data["description"]),
            warnings=_texts(data["warnings"]),
            scanned=_numbers(data["scanned"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ParseError(f"damaged: its reader gave a damaged answer ({type(error).__name__})") from None
    lines = document.text.count("\n") + 1
    spans = [(s.start, s.end) for s in document.sections] + [(b.start, b.end) for b in document.blocks]
    if (
        (document.text and len(document.line_numbers) != lines)
        or (document.pages is not None and len(document.pages) != len(document.line_numbers))
        or not all(0 <= start <= end <= len(document.text) for start, end in spans)
    ):
        raise ParseError("damaged: its reader gave a damaged answer (places outside the text)")
    return document


def dump(data: JSONObject) -> bytes:
    """Returns ``data`` as JSON; ASCII, so that lone surrogates survive."""
    return json.dumps(data, separators=(",", ":")).encode("ascii")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return tuple(_text(item) for item in value)


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("not a number")
    return value


def _numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return tuple(_number(item) for item in value)
