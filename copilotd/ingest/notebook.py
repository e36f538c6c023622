"""Jupyter notebooks: Markdown and code cells, on the lines of the JSON file they are written on.

Each Markdown cell is read by the Markdown parser; outputs are not read, because they are made from the code.
"""

from __future__ import annotations

from bisect import bisect_right

from copilotd.errors import ParseError
from copilotd.ingest.decode import decode
from copilotd.ingest.lines import clean_characters
from copilotd.ingest.markdown import MarkdownParser
from copilotd.ingest.notebook_json import Cell, read_cells
from copilotd.ingest.outline import Leaf, build_document
from copilotd.types import BlockKind, Document


class NotebookParser:
    """Reads ``.ipynb`` files."""

    name = "notebook"
    version = 2
    suffixes: tuple[str, ...] = (".ipynb",)
    isolated = False

    def __init__(self) -> None:
        self._markdown = MarkdownParser()

    def parse(self, source: bytes, doc_title: str) -> Document:
        """Parses ``source``.

        Raises:
            ParseError: It is no notebook.
        """
        text = decode(source)
        cells, _ = read_cells(text)
        notebook = _Notebook(text.count("\n") + 1)
        description = ""
        for cell in cells:
            if cell.kind in ("markdown", "heading"):
                description = description or self._add_markdown(notebook, cell)
            elif cell.lines:
                notebook.add_verbatim(cell)
        return build_document(
            doc_title,
            notebook.lines(),
            notebook.leaves,
            description=description,
            verbatim=notebook.verbatim,
        )

    def _add_markdown(self, notebook: _Notebook, cell: Cell) -> str:
        text = "\n".join(line.rstrip("\n") for _, line in cell.lines)
        try:
            document = self._markdown.parse(text.encode("utf-8", "replace"), "")
        except ParseError:
            notebook.add_verbatim(cell)
            return ""
        notebook.add_markdown(document, [line for line, _ in cell.lines])
        return document.description


class _Notebook:
    """Collects the text of each line of the file, and the blocks."""

    def __init__(self, size: int) -> None:
        self._words: dict[int, str] = {}
        self._gaps: list[int] = []
        self._size = size
        self._group = 0
        self.leaves: list[Leaf] = []
        self.verbatim: set[int] = set()

    def lines(self) -> list[str | None]:
        """Returns the text of each line of the file; a line between cells keeps them apart."""
        lines: list[str | None] = [None] * self._size
        for number, words in self._words.items():
            lines[number] = words
        for number in self._gaps:
            if number >= 0 and number not in self._words:
                lines[number] = ""
        return lines

    def _put(self, number: int, words: str) -> None:
        # A cell written as one string stands on one line of the file.
        before = self._words.get(number)
        self._words[number] = words if before is None else f"{before} {words}".rstrip()

    def add_verbatim(self, cell: Cell) -> None:
        """Adds a cell of code, or of text of an unknown kind."""
        self._group += 1
        first, last = cell.lines[0][0], cell.lines[-1][0]
        for number, words in cell.lines:
            self._put(number, clean_characters(words.rstrip("\n")))
        kind = BlockKind.CODE if cell.kind == "code" else BlockKind.PARAGRAPH
        if kind is BlockKind.CODE:
            self.verbatim.update(range(first, last + 1))
        self._gaps.append(first - 1)
        self.leaves.append(Leaf(kind, first, last + 1, self._group))

    def add_markdown(self, document: Document, numbers: list[int]) -> None:
        """Adds a Markdown cell; ``numbers`` are the lines of the file its own lines stand on."""
        text = document.text
        starts = [0]
        for words, number in zip(text.split("\n"), document.line_numbers, strict=False):
            self._put(numbers[number - 1], words)
            starts.append(starts[-1] + len(words) + 1)
        if numbers:
            self._gaps.append(numbers[0] - 1)

        def line_of(character: int) -> int:
            return numbers[document.line_numbers[bisect_right(starts, character) - 1] - 1]

        sections = {section.start: section for section in document.sections if section.level}
        for block in document.blocks:
            first, last = line_of(block.start), line_of(block.end - 1)
            group = self._group + 1 + block.group if block.group >= 0 else block.group
            section = sections.get(block.start) if block.kind is BlockKind.HEADING else None
            header = line_of(block.header_end - 1) + 1 - first if block.header_end > block.start else 0
            self.leaves.append(
                Leaf(
                    block.kind,
                    first,
                    last + 1,
                    group,
                    level=section.level if section else 0,
                    heading=section.heading if section else "",
                    anchor=section.anchor if section else "",
                    header_lines=header,
                )
            )
        self._group += 1 + max((block.group for block in document.blocks), default=0)
