"""Word documents, with python-docx: headings, paragraphs, lists and tables in their order.

A Word document has no lines, and its pages exist only once it is laid out: the line numbers are those of the
text as it is read here.
"""

from __future__ import annotations

import io
import re
from importlib.util import find_spec
from typing import Any

from copilotd.errors import ParseError
from copilotd.ingest.lines import clean_characters, has_words
from copilotd.ingest.outline import Leaf, build_document
from copilotd.types import BlockKind, Document

_HEADING = re.compile(r"heading (\d)", re.IGNORECASE)
_CODE = re.compile(r"code|preformatted|source|macro", re.IGNORECASE)
_MAX_BASES = 10


class DocxParser:
    """Reads ``.docx`` files."""

    name = "docx"
    # Installing the extra is a change of the parser: what was skipped for want of it is read again.
    version = 2 if find_spec("docx") else 1
    suffixes: tuple[str, ...] = (".docx",)
    isolated = True

    def parse(self, source: bytes, doc_title: str) -> Document:
        """Parses ``source``.

        Raises:
            ParseError: It cannot be read, or python-docx is not installed.
        """
        try:
            import docx
        except ImportError as error:
            raise ParseError("needs the extra: pip install 'docs-copilot[docx]'") from error
        try:
            word = docx.Document(io.BytesIO(source))
            text = _Text()
            for part in word.iter_inner_content():
                if hasattr(part, "rows"):
                    text.add_table(part)
                else:
                    text.add_paragraph(part)
            properties = word.core_properties
            title, description = properties.title or "", properties.subject or ""
        except MemoryError:
            raise
        except Exception as error:  # whatever a damaged archive or its XML makes of it
            raise ParseError(f"not a readable Word document ({type(error).__name__})") from error
        return build_document(
            doc_title, list(text.lines), text.leaves, title=title or text.title, description=description
        )


class _Text:
    """Collects lines and blocks."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leaves: list[Leaf] = []
        self.title = ""
        self._group = 0
        self._in_list = False
        self._styles: dict[str, list[str]] = {}

    def add_paragraph(self, paragraph: Any) -> None:
        """Adds a paragraph, a heading or a list item."""
        text = clean_characters(paragraph.text)
        if not has_words(text):
            return
        names = self._style_names(paragraph.style)
        level = next((int(found[1]) for name in names if (found := _HEADING.fullmatch(name))), 0)
        if "title" in names:
            self.title = self.title or " ".join(text.split())
            level = 1
        listed = not level and (
            self._is_numbered(paragraph) or any(name.startswith("list") for name in names)
        )
        kind = BlockKind.PARAGRAPH
        if level:
            kind = BlockKind.HEADING
            text = " ".join(text.split())
        elif listed:
            kind = BlockKind.LIST_ITEM
        elif any(_CODE.search(name) for name in names):
            kind = BlockKind.CODE
        elif any("quote" in name for name in names):
            kind = BlockKind.QUOTE
        same = self.leaves and (self._in_list if listed else self._continues_code(kind))
        self._group += not same
        self._in_list = listed
        lines = ("- " + text if listed else text).split("\n")
        self._add(kind, lines, level=level, heading=text if level else "", apart=not same)

    def add_table(self, table: Any) -> None:
        """Adds a table, a line a row; cells that are merged are written once."""
        rows: list[str] = []
        for row in table.rows:
            cells: list[str] = []
            seen: set[int] = set()
            for cell in row.cells:
                if id(cell._tc) not in seen:
                    seen.add(id(cell._tc))
                    cells.append(" ".join(clean_characters(cell.text).split()))
            if has_words(" ".join(cells)):
                rows.append("| " + " | ".join(cells) + " |")
        self._group += 1
        self._in_list = False
        if rows:
            self._add(BlockKind.TABLE, rows, header_lines=1 if len(rows) > 1 else 0)

    def _add(
        self,
        kind: BlockKind,
        lines: list[str],
        *,
        level: int = 0,
        heading: str = "",
        header_lines: int = 0,
        apart: bool = True,
    ) -> None:
        if self.lines and apart:
            self.lines.append("")
        start = len(self.lines)
        self.lines.extend(lines)
        self.leaves.append(
            Leaf(
                kind,
                start,
                len(self.lines),
                self._group,
                level=level,
                heading=heading,
                header_lines=header_lines,
            )
        )

    def _continues_code(self, kind: BlockKind) -> bool:
        return kind is BlockKind.CODE and self.leaves[-1].kind is BlockKind.CODE

    def _is_numbered(self, paragraph: Any) -> bool:
        properties = paragraph._p.pPr
        return properties is not None and properties.numPr is not None

    def _style_names(self, style: Any) -> list[str]:
        """Returns the names of a style and of those it is based on, lower-case."""
        key = getattr(style, "style_id", None) or ""
        if key not in self._styles:
            names: list[str] = []
            while style is not None and len(names) < _MAX_BASES:
                names.append((style.name or "").lower())
                style = getattr(style, "base_style", None)
            self._styles[key] = names
        return self._styles[key]
