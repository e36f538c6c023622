"""Org, line by line: no well-kept Python library reads it and tells the lines.

The text is kept as it was written, less what no reader of the exported page sees: keywords, comments, drawers,
commented subtrees.
"""

from __future__ import annotations

import re

from copilotd.ingest.line_reader import LineReader, without_marks
from copilotd.types import BlockKind, Document

_HEADING = re.compile(r"(?P<stars>\*+)[ \t]+(?P<words>\S.*)")
_STATE = re.compile(r"(?:TODO|DONE|NEXT|WAITING|HOLD|CANCELL?ED)[ \t]+|\[#\w\][ \t]+")
_TAGS = re.compile(r"[ \t]+:(?:[\w@#%]+:)+\s*$")
_KEYWORD = re.compile(r"\s*#\+(?P<name>[\w-]+)(?:\[[^\]]*\])?:[ \t]*(?P<value>.*)")
_BLOCK = re.compile(r"\s*#\+begin_(?P<name>\S+)(?P<rest>.*)", re.IGNORECASE)
_END = re.compile(r"\s*#\+end_(?P<name>\S+)\s*", re.IGNORECASE)
_DRAWER = re.compile(r"\s*:(?P<name>[\w-]+):\s*")
_CUSTOM_ID = re.compile(r"\s*:CUSTOM_ID:\s+(?P<id>\S+)\s*", re.IGNORECASE)
_COMMENT = re.compile(r"\s*#(?:\s.*)?")
_LIST_ITEM = re.compile(r"\s*(?:[-+]|\d+[.)])[ \t]+\S|\s+\*[ \t]+\S")
_TABLE_RULE = re.compile(r"\s*\|[-+|]+\s*")
_LINK = re.compile(r"\[\[[^\[\]]*\]\[(?P<text>[^\[\]]*)\]\]|\[\[(?P<target>[^\[\]]*)\]\]")
_EMPHASIS = re.compile(r"(?<![^\s\-({'\"])([*/_=~+])(?=\S)(.{1,200}?)(?<=\S)\1(?![^\s\-.,;:!?'\")}\[\\])")
_SHOWN = frozenset(("title", "subtitle", "caption", "include", "author"))
_CODE = frozenset(("src", "example"))


class OrgParser:
    """Reads Org files."""

    name = "org"
    version = 2
    suffixes: tuple[str, ...] = (".org",)
    isolated = False

    def parse(self, source: bytes, doc_title: str) -> Document:
        """Parses ``source``.

        Raises:
            ParseError: The bytes are not text.
        """
        return _Reader(source).read(doc_title)


def _words_of(heading: str) -> str:
    words = _LINK.sub(lambda match: match["text"] or match["target"] or "", heading)
    return without_marks(words, _EMPHASIS)


class _Reader(LineReader):
    def __init__(self, source: bytes) -> None:
        super().__init__(source)
        self._ends: dict[str, list[int]] = {}
        for index in range(len(self.lines) - 1, -1, -1):
            if self.lines[index].lstrip()[:2] == "#+" and (end := _END.fullmatch(self.lines[index])):
                self._ends.setdefault(end["name"].lower(), []).append(index)
        self._drawer_ends = [
            index
            for index in range(len(self.lines) - 1, -1, -1)
            if self.lines[index].strip().upper() == ":END:"
        ]
        self._headings = [
            index for index in range(len(self.lines) - 1, -1, -1) if self.lines[index].startswith("*")
        ]

    def read_line(self, index: int, line: str) -> int:
        """Reads what starts at a line and returns where the next thing starts."""
        if heading := _HEADING.fullmatch(line):
            return self._heading(index, heading)
        start = line.lstrip()
        if start.startswith("#"):
            if block := _BLOCK.fullmatch(line):
                return self._block(index, block)
            if keyword := _KEYWORD.fullmatch(line):
                self._keyword(index, keyword)
                return index + 1
            if _COMMENT.fullmatch(line):
                self.drop(index)
                return index + 1
            if _END.fullmatch(line):
                self.close(index)
                self.drop(index)
                return index + 1
        elif start.startswith("|"):
            return self._table(index)
        elif start.startswith(":"):
            if start.startswith(": ") or start.rstrip() == ":":
                return self._fixed_width(index)
            if _DRAWER.fullmatch(line) and (end := self._drawer_end(index)):
                self.close(index)
                self.drop(index, end + 1)
                return end + 1
        self._text(index, line)
        return index + 1

    def _heading(self, index: int, heading: re.Match[str]) -> int:
        words, level = heading["words"], len(heading["stars"])
        while state := _STATE.match(words):
            words = words[state.end() :]
        words = _TAGS.sub("", words)
        if words.split()[:1] == ["COMMENT"]:
            end = index + 1
            while end < len(self.lines):
                following = _HEADING.fullmatch(self.lines[end])
                if following and len(following["stars"]) <= level:
                    break
                end += 1
            self.close(index)
            self.drop(index, end)
            return end
        self.heading(index, level, _words_of(words), self._custom_id(index + 1))
        self.in_list = False
        return index + 1

    def _drawer_end(self, index: int) -> int:
        """Returns the last line of the drawer that starts at a line, or 0 where it is none."""
        end, heading = _next(self._drawer_ends, index), _next(self._headings, index)
        return 0 if heading and heading < end else end

    def _custom_id(self, index: int) -> str:
        for line in self.lines[index : index + 20]:
            if found := _CUSTOM_ID.fullmatch(line):
                return found["id"]
            if not line.lstrip().startswith((":", "SCHEDULED", "DEADLINE", "CLOSED")):
                break
        return ""

    def _keyword(self, index: int, keyword: re.Match[str]) -> None:
        name, value = keyword["name"].lower(), keyword["value"]
        if name == "title":
            self.title = f"{self.title} {value}".strip()
        elif name == "description":
            self.description = f"{self.description} {value}".strip()
        self.close(index)
        if name in _SHOWN and value.strip():
            if name != "include":
                self.kept[index] = value
            self.begin(BlockKind.PARAGRAPH, index)
            self.close(index + 1)
        else:
            self.drop(index)

    def _block(self, index: int, block: re.Match[str]) -> int:
        name = block["name"].lower()
        end = _next(self._ends.get(name, []), index)
        self.close(index)
        if not end:
            self.drop(index)
            return index + 1
        if name == "comment" or (name == "export" and "html" not in block["rest"].lower()):
            self.drop(index, end + 1)
            return end + 1
        if name == "export":
            self.strip_html(index + 1, end)
        elif name in _CODE:
            if not self.in_list:
                self.new_group()
            for inner in range(index + 1, end):
                # A comma keeps a line of code from being read as a heading.
                self.kept[inner] = re.sub(r"^(\s*),(?=,*(?:\*|#\+))", r"\1", self.lines[inner])
            self.drop(end)
            self.add(BlockKind.CODE, index, end, header_lines=1, code=True)
            return end + 1
        self.drop_frame(index, end)
        kind = BlockKind.QUOTE if name in ("quote", "verse") else BlockKind.OTHER
        self.new_group()
        self.add(kind, index + 1, max(end, index + 1))
        return end + 1

    def _table(self, index: int) -> int:
        end = index
        header = 0
        while end < len(self.lines) and self.lines[end].lstrip().startswith("|"):
            if _TABLE_RULE.fullmatch(self.lines[end]):
                header = header or end - index
                self.drop(end)
            end += 1
        if not self.in_list:
            self.new_group()
        self.add(BlockKind.TABLE, index, end, header_lines=header)
        return end

    def _fixed_width(self, index: int) -> int:
        end = index
        while end < len(self.lines) and re.match(r"\s*:(?:\s|$)", self.lines[end]):
            self.kept[end] = re.sub(r"^(\s*):\s?", r"\1", self.lines[end])
            end += 1
        self.new_group()
        self.add(BlockKind.CODE, index, end, code=True)
        return end

    def _text(self, index: int, line: str) -> None:
        if _LIST_ITEM.match(line):
            self.begin(BlockKind.LIST_ITEM, index, same_group=self.in_list)
            self.in_list = True
        elif self.open_kind is None:
            self.in_list = self.in_list and line[0] in " \t"
            self.begin(
                BlockKind.LIST_ITEM if self.in_list else BlockKind.PARAGRAPH, index, same_group=self.in_list
            )


def _next(places: list[int], index: int) -> int:
    """Returns the first place behind ``index``, or 0; ``places`` is in falling order and loses what is passed."""
    while places and places[-1] <= index:
        places.pop()
    return places[-1] if places else 0
