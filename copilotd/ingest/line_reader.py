"""What the parsers share that go through a document line by line: AsciiDoc and Org."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from copilotd.ingest.decode import decode
from copilotd.ingest.lines import clean_characters
from copilotd.ingest.markup import strip_markup
from copilotd.ingest.outline import Leaf, build_document
from copilotd.types import BlockKind, Document

_MAX_HEADING = 1_000


def without_marks(words: str, emphasis: re.Pattern[str]) -> str:
    """Returns a heading's words without the marks of emphasis and code.

    Args:
        words: As they were written.
        emphasis: Matches words between marks: groups of odd number are marks, those of even number words.
    """
    # Nobody names a section with more, and what is nested deeper is no emphasis.
    for _ in range(3 if len(words) <= _MAX_HEADING else 0):
        plain = emphasis.sub(lambda match: "".join(filter(None, match.groups()[1::2])), words)
        if plain == words:
            break
        words = plain
    return words.strip()


class LineReader(ABC):
    """Goes through the lines of a document and keeps what they are: text, and the block that is open.

    Attributes:
        lines: The source's lines, invisible characters removed.
        kept: The lines as they will be in the document; None for those that are not.
        leaves: The blocks that are finished.
        verbatim: Lines that stay even where they are blank.
        group: The group of the last block.
        in_list: Whether what follows may go on with a list.
        title: The title the source gives.
        description: What the source says of itself.
    """

    def __init__(self, source: bytes) -> None:
        self.lines = clean_characters(decode(source)).split("\n")
        self.kept: list[str | None] = list(self.lines)
        self.leaves: list[Leaf] = []
        self.verbatim: set[int] = set()
        self.group = 0
        self.in_list = False
        self.title = self.description = ""
        self._kind: BlockKind | None = None
        self._start = 0

    def read(self, doc_title: str) -> Document:
        """Goes through the lines and returns the document they are."""
        index = 0
        while index < len(self.lines):
            line = self.lines[index]
            if line.strip():
                index = self.read_line(index, line)
            else:
                self.close(index)
                index += 1
        self.close(len(self.lines))
        return build_document(
            doc_title,
            self.kept,
            self.leaves,
            title=self.title,
            description=self.description,
            verbatim=self.verbatim,
        )

    @abstractmethod
    def read_line(self, index: int, line: str) -> int:
        """Reads what starts at a line that is not blank, and returns where the next thing starts."""

    @property
    def open_kind(self) -> BlockKind | None:
        """The kind of the block that is open."""
        return self._kind

    def new_group(self) -> int:
        """Begins another group and returns its number."""
        self.group += 1
        return self.group

    def begin(self, kind: BlockKind, line: int, *, same_group: bool = False) -> None:
        """Begins a block at ``line``, ending the open one."""
        self.close(line)
        if not same_group:
            self.group += 1
        self._kind, self._start = kind, line

    def close(self, line: int) -> None:
        """Ends the open block before ``line``."""
        if self._kind is not None and line > self._start:
            self.leaves.append(Leaf(self._kind, self._start, line, self.group))
        self._kind = None

    def add(
        self, kind: BlockKind, start: int, end: int, *, header_lines: int = 0, code: bool = False
    ) -> None:
        """Adds a whole block; ``code`` keeps its blank lines."""
        self.close(start)
        self.leaves.append(Leaf(kind, start, end, self.group, header_lines=header_lines))
        if code:
            self.verbatim.update(range(start, end))

    def heading(self, line: int, level: int, words: str, anchor: str, *, lines: int = 1) -> None:
        """Adds a heading of one or more lines."""
        self.close(line)
        self.group += 1
        self.leaves.append(
            Leaf(BlockKind.HEADING, line, line + lines, self.group, level=level, heading=words, anchor=anchor)
        )

    def drop(self, start: int, end: int | None = None) -> None:
        """Leaves a line, or the lines up to ``end``, out of the text."""
        end = start + 1 if end is None else end
        self.kept[start:end] = [None] * (end - start)

    def drop_frame(self, first: int, last: int) -> None:
        """Leaves the first and the last line of a block out of the text."""
        self.drop(first)
        self.drop(last)

    def strip_html(self, start: int, end: int) -> None:
        """Leaves the tags of lines that are HTML out of the text."""
        stripped = strip_markup("\n".join(self.lines[start:end]), frozenset()).split("\n")
        self.kept[start:end] = stripped[: end - start]
