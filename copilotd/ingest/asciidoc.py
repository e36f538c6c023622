"""AsciiDoc, line by line: no well-kept Python library reads it and tells the lines.

The text is kept as it was written, less what no reader of the rendered page sees: attribute entries, comments,
block attributes, delimiters, conditionals.
"""

from __future__ import annotations

import re

from copilotd.ingest.line_reader import LineReader, without_marks
from copilotd.ingest.lines import has_words
from copilotd.ingest.outline import names
from copilotd.types import BlockKind, Document

_HEADING = re.compile(r"(={1,6}|#{1,6})[ \t]+(?P<words>\S.*)")
_UNDERLINE = re.compile(r"([=\-~^+])\1+\s*")
_UNDERLINE_LEVELS = {"=": 1, "-": 2, "~": 3, "^": 4, "+": 5}
_DELIMITER = re.compile(r"(?:-{4,}|\.{4,}|={4,}|\*{4,}|_{4,}|\+{4,}|/{4,}|--|[|,:!]={3,}|```.*)\s*")
_ATTRIBUTE = re.compile(r":!?(?P<name>[\w-]+)!?:(?:[ \t]+(?P<value>.*))?")
_BLOCK_ATTRIBUTES = re.compile(r"\[(?![\[\s])(?P<list>[^\]]*|\"[^\"]*\")\]\s*")
_ANCHOR = re.compile(r"\[\[(?P<id>[\w:.-]+)(?:,[^\]]*)?\]\]\s*")
_ID = re.compile(r"(?:^|,)\s*(?:[\w-]*#(?P<short>[\w:.-]+)|id\s*=\s*\"?(?P<long>[\w:.-]+))")
_CODE_ATTRIBUTES = re.compile(r"source\b|,\s*\w+|listing\b", re.IGNORECASE)
_ADMONITIONS = names("NOTE TIP IMPORTANT WARNING CAUTION")
_DIRECTIVE = re.compile(r"(?:ifdef|ifndef|ifeval|endif|toc)::")
_INLINE_CONDITION = re.compile(r"(ifdef|ifndef)::[^\[\]]*\[(?P<text>.+)\]\s*")
_BLOCK_TITLE = re.compile(r"\.[^\s.].*")
_LIST_ITEM = re.compile(
    r"\s*(?:[*\-.]{1,6}|\d+\.|[a-zA-Z]\.|[ivx]+\)|<(?:\d+|\.)>)[ \t]+\S|\s*\S.{0,300}?:{2,4}(?:\s|$)"
)
_INLINE_ANCHOR = re.compile(r"\[\[(?P<id>[\w:.-]+)[^\]]*\]\]\s*")
_LINK = re.compile(
    r"(?:link:|xref:|https?://|mailto:)[^\s\[\]]{1,2000}\[(?P<text>[^\[\]]*)\]|<<[^<>,]*,?\s*(?P<other>[^<>]*)>>"
)
_EMPHASIS = re.compile(
    r"(?<!\\)([*_`#+])\1(?=\S)(.{1,200}?)(?<=\S)\1\1|(?<![\w\\])([*_`#+])(?=\S)(.{1,200}?)(?<=\S)\3(?!\w)"
    r"|([\^~])([^\s^~]{1,200})\5"
)


class AsciiDocParser:
    """Reads AsciiDoc."""

    name = "asciidoc"
    version = 3
    suffixes: tuple[str, ...] = (".adoc", ".asciidoc", ".asc")
    isolated = False

    def parse(self, source: bytes, doc_title: str) -> Document:
        """Parses ``source``.

        Raises:
            ParseError: The bytes are not text.
        """
        return _Reader(source).read(doc_title)


def _words_of(heading: str) -> str:
    words = _INLINE_ANCHOR.sub("", heading)
    words = _LINK.sub(lambda match: match["text"] or match["other"] or match[0], words)
    return without_marks(words, _EMPHASIS)


class _Reader(LineReader):
    def __init__(self, source: bytes) -> None:
        super().__init__(source)
        self._blocks: list[str] = []
        self._anchor = ""
        # Lines that tell what the next one begins: attributes of code, an admonition's name, a `+`.
        self._code = self._admonition = self._attached = -2
        self._closers: dict[str, int] = {}
        for index, line in enumerate(self.lines):
            self._closers[line.rstrip()] = index

    def read_line(self, index: int, line: str) -> int:
        """Reads what starts at a line and returns where the next thing starts."""
        if _DELIMITER.fullmatch(line) and (end := self._delimited(index, line.rstrip())):
            return end
        if self.open_kind is None:
            if heading := _HEADING.fullmatch(line):
                self._heading(index, len(heading[1]), re.sub(r"\s+[=#]+\s*$", "", heading["words"]), 1)
                return index + 1
            if level := self._underlined(index, line):
                self._heading(index, level, line, 2)
                self.drop(index + 1)
                return index + 2
        if self._setting(index, line):
            return index + 1
        self._text(index, line)
        return index + 1

    def _heading(self, index: int, level: int, words: str, lines: int) -> None:
        anchor = self._anchor
        if found := _INLINE_ANCHOR.search(words):
            anchor = found["id"]
        self.heading(index, level, _words_of(words), anchor, lines=lines)
        self._anchor = ""
        self.in_list = False

    def _underlined(self, index: int, line: str) -> int:
        if index + 1 >= len(self.lines) or not has_words(line) or line[0] in " \t.[|":
            return 0
        below = self.lines[index + 1]
        if not _UNDERLINE.fullmatch(below) or abs(len(below.rstrip()) - len(line.rstrip())) > 1:
            return 0
        return _UNDERLINE_LEVELS[below[0]]

    def _setting(self, index: int, line: str) -> bool:
        """Reads a line that sets something for what follows."""
        if line.startswith("//") and not line.startswith("///"):
            self.drop(index)
        elif (attribute := _ATTRIBUTE.fullmatch(line)) and self.open_kind is not BlockKind.LIST_ITEM:
            if attribute["name"] == "description":
                self.description = attribute["value"] or ""
            self.drop(index)
        elif self.open_kind is None and (anchor := _ANCHOR.fullmatch(line)):
            self._anchor = anchor["id"]
            self.drop(index)
        elif self.open_kind is None and (attributes := _BLOCK_ATTRIBUTES.fullmatch(line)):
            self._attributes(index, attributes["list"])
        elif condition := _INLINE_CONDITION.fullmatch(line):
            self.kept[index] = condition["text"]
            return False
        elif _DIRECTIVE.match(line) or line.strip() == "+":
            self.close(index)
            self.drop(index)
            if line.strip() == "+":
                self._attached = index
        else:
            return False
        return True

    def _attributes(self, index: int, found: str) -> None:
        if anchor := _ID.search(found):
            self._anchor = anchor["short"] or anchor["long"]
        if found.split(",")[0].strip() in _ADMONITIONS:
            self.kept[index] = found.split(",")[0].strip() + ":"
            self.begin(BlockKind.PARAGRAPH, index, same_group=self._joins(index))
            self.close(index + 1)
            self._admonition = index
        elif _CODE_ATTRIBUTES.match(found):
            self._code = index
        else:
            self.drop(index)

    def _text(self, index: int, line: str) -> None:
        if self.open_kind is None and _BLOCK_TITLE.fullmatch(line):
            self.kept[index] = line[1:]
            self.begin(BlockKind.PARAGRAPH, index)
            self.close(index + 1)
        elif self._code == index - 1:
            self.begin(BlockKind.CODE, index - 1, same_group=self._joins(index - 1))
        elif self.open_kind is BlockKind.CODE:
            return
        elif _LIST_ITEM.match(line):
            self.begin(BlockKind.LIST_ITEM, index, same_group=self.in_list or bool(self._blocks))
            self.in_list = True
        elif self.open_kind is None:
            self.in_list = self.in_list and (line[0] in " \t" or self._attached == index - 1)
            quoted = any(mark[0] == "_" for mark in self._blocks)
            self.begin(
                BlockKind.QUOTE if quoted else BlockKind.PARAGRAPH,
                index,
                same_group=self.in_list or self._joins(index),
            )

    def _joins(self, index: int) -> bool:
        """Tells whether what starts at a line belongs to the group before it."""
        return bool(self._blocks) or index - 1 in (self._admonition, self._attached)

    def _delimited(self, index: int, mark: str) -> int:
        """Reads a delimited block, or its opening or closing where other blocks may be in it; 0 if it is none."""
        closer = "```" if mark.startswith("```") else mark
        if mark in self._blocks:
            while self._blocks.pop() != mark:
                pass
            self.close(index)
            self.drop(index)
            self.in_list = False
            return index + 1
        if self._closers.get(closer, -1) <= index:
            return 0
        if mark[0] in "=*_" or mark == "--":
            self.close(index)
            self.drop(index)
            if not self._joins(index):
                self.new_group()
            self._blocks.append(mark)
            return index + 1
        end = index + 1
        while self.lines[end].rstrip() != closer:
            end += 1
        self._whole(index, end, mark)
        return end + 1

    def _whole(self, index: int, end: int, mark: str) -> None:
        """Adds a block whose lines are not AsciiDoc; ``end`` is its closing line."""
        attributes = self._code == index - 1
        start = index - 1 if attributes else index
        self.close(start)
        if mark[0] == "/":
            self.drop(start, end + 1)
            return
        if not self._joins(start):
            self.in_list = False
            self.new_group()
        if mark[0] in "|,:!":
            self.drop_frame(index, end)
            self.add(BlockKind.TABLE, start, end, header_lines=self._table_header(start, index + 1, end))
        elif mark[0] == "+":
            self.drop(start, index + 1)
            self.drop(end)
            self.strip_html(index + 1, end)
            self.add(BlockKind.OTHER, index + 1, end)
        else:
            if not mark.startswith("```"):
                self.drop_frame(index, end)
            header = attributes or mark.startswith("```")
            self.add(BlockKind.CODE, start, end + 1, header_lines=1 if header else 0, code=True)
            self.verbatim -= {index, end} if not mark.startswith("```") else set()

    def _table_header(self, start: int, first: int, end: int) -> int:
        """Returns how many lines of a table are its header: its first row, if a blank line follows it."""
        while first < end and not self.lines[first].strip():
            first += 1
        row = first
        while row < end and self.lines[row].strip():
            row += 1
        named = start > 0 and "header" in self.lines[start - 1]
        if row < end and row - first == 1:
            return row - start
        return first + 1 - start if named else 0
