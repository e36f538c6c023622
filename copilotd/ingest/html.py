"""HTML: what a reader sees of a page's content, each word on its source line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape

from copilotd.ingest.decode import decode
from copilotd.ingest.html_events import VOID, Event, content_spans, is_skipped, read_events
from copilotd.ingest.lines import clean_characters
from copilotd.ingest.outline import Leaf, build_document, names
from copilotd.types import BlockKind, Document

_INLINE = names("""
    a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark nobr q rb rp rt ruby s samp
    small span strike strong sub sup time tt u var wbr img
    """)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_GROUPS = names("ul ol dl menu table blockquote details")
_KINDS = {
    "pre": BlockKind.CODE,
    "table": BlockKind.TABLE,
    "li": BlockKind.LIST_ITEM,
    "dt": BlockKind.LIST_ITEM,
    "dd": BlockKind.LIST_ITEM,
    "blockquote": BlockKind.QUOTE,
}
_ADMONITIONS = names("admonition alert callout note warning tip theme-admonition")
_SPACES = re.compile(r"\s+")
_ALT = re.compile(r"\salt\s*=\s*(?P<value>\"[^\"]*\"|'[^']*'|[^\s>]+)", re.IGNORECASE)
_MAX_DEPTH = 200


class HtmlParser:
    """Reads HTML pages: their main content, without navigation and scripts."""

    name = "html"
    version = 2
    suffixes: tuple[str, ...] = (".html", ".htm", ".xhtml")
    isolated = False

    def parse(self, source: bytes, doc_title: str) -> Document:
        """Parses ``source``.

        Raises:
            ParseError: The bytes are not text.
        """
        text = decode(source)
        events = read_events(text)
        page = _Page(text.count("\n") + 1)
        for first, end in content_spans(events):
            page.read(events, first, end)
        title, description = _head(events)
        return build_document(
            doc_title,
            page.lines(),
            page.leaves(),
            title=title,
            description=description,
            verbatim=page.verbatim,
        )


def _head(events: Sequence[Event]) -> tuple[str, str]:
    """Returns the title and the description that the page's head gives."""
    title = description = ""
    for index, event in enumerate(events):
        if event.kind != "start":
            continue
        if event.name == "title" and not title:
            title = "".join(part.name for part in events[index + 1 : event.last] if part.kind == "text")
        elif event.name == "meta" and event.attributes.get("name", "").lower() == "description":
            description = description or event.attributes.get("content", "")
        elif event.name in _HEADINGS:
            break
    return title, description


class _Page:
    """Collects the words of each source line, and which blocks they are."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._words: dict[int, list[str]] = {}
        self._leaves: list[Leaf] = []
        self._open: list[tuple[str, int]] = []
        self._group = 0
        self._fresh = True
        self._heading: tuple[int, int, list[str], str] | None = None
        self._table: tuple[int, int, bool] | None = None
        self._headers: dict[int, int] = {}
        self._last_line = 0
        self.verbatim: set[int] = set()

    def lines(self) -> list[str | None]:
        """Returns the text of each source line; None where it has none."""
        lines: list[str | None] = [None] * self._size
        ends = {leaf.start for leaf in self._leaves}
        for number, parts in self._words.items():
            # Cleaned once more: a character reference may stand for anything.
            joined = clean_characters("".join(parts).replace("\r", " "))
            lines[number] = joined.rstrip() if number in self.verbatim else _SPACES.sub(" ", joined).strip()
        for number in ends:
            # A blank line keeps blocks apart where the source has a line to spare.
            if number and number - 1 not in self._words:
                lines[number - 1] = ""
        return lines

    def leaves(self) -> list[Leaf]:
        """Returns the blocks; each ends where the next one starts."""
        ordered = sorted(self._leaves, key=lambda leaf: leaf.start)
        starts = [leaf.start for leaf in ordered[1:]] + [self._size] * bool(ordered)
        return [
            leaf
            if leaf.level
            else Leaf(
                leaf.kind,
                leaf.start,
                max(end, leaf.start + 1),
                leaf.group,
                header_lines=self._headers.get(leaf.start, 0),
            )
            for leaf, end in zip(ordered, starts, strict=True)
        ]

    def read(self, events: Sequence[Event], first: int, end: int) -> None:
        """Reads the events of one part of the page."""
        in_content = events[first].kind == "start" and events[first].name != "body" if first < end else False
        index = first
        while index < end:
            event = events[index]
            if event.kind == "start" and event.last > index and is_skipped(event, in_content=in_content):
                index = event.last
                self._break()
            elif event.kind == "start":
                self._start(event)
            elif event.kind == "end":
                self._end(event)
            else:
                self._text(event.name, event.line)
            index += 1
        self._close_heading()
        self._open.clear()

    def _start(self, event: Event) -> None:
        name, line = event.name, event.line
        if name in _HEADINGS and not self._inside("table"):
            self._close_heading()
            self._break()
            self._separate(line)
            self._heading = (line, _HEADINGS[name], [], event.attributes.get("id", ""))
        elif name == "img":
            if event.attributes.get("alt") and (alt := _ALT.search(event.raw)):
                first = line + event.raw.count("\n", 0, alt.start("value"))
                for number, words in enumerate(alt["value"].strip("\"'").split("\n"), first):
                    self._put(f" {unescape(words)} ".replace("\n", " "), number)
            return
        elif name in ("td", "th"):
            if self._words.get(line):
                self._words[line].append(" | ")
        elif name == "li":
            self._break()
        elif name not in _INLINE:
            self._break()
            self._separate(line)
        if name == "table" and self._table is None:
            self._table = (line, len(self._leaves), False)
        elif name == "th" and self._table is not None:
            self._table = (*self._table[:2], True)
        if self._heading is not None and not self._heading[3] and "id" in event.attributes:
            self._heading = (*self._heading[:3], event.attributes["id"])
        if name in VOID or name in _INLINE or len(self._open) > _MAX_DEPTH:
            return
        group = self._open[-1][1] if self._open else 0
        grouping = name in _GROUPS or not _ADMONITIONS.isdisjoint(event.attributes.get("class", "").split())
        if not group and grouping:
            self._group += 1
            group = self._group
        self._open.append((name, group))
        if name == "li":
            self._put("- ", line, marker=True)

    def _end(self, event: Event) -> None:
        name = event.name
        if name in _INLINE:
            return
        if name in _HEADINGS:
            self._close_heading()
        elif name == "tr" and self._table is not None and self._table[2]:
            start = self._table[0]
            self._headers.setdefault(start, event.line + 1 - start)
            self._table = (*self._table[:2], False)
        elif name == "table":
            self._table = None
        if name not in ("td", "th", "tr"):
            self._break()
        self._separate(event.line)
        for position in range(len(self._open) - 1, -1, -1):
            if self._open[position][0] == name:
                del self._open[position:]
                break

    def _text(self, text: str, line: int) -> None:
        pre = self._inside("pre")
        for offset, part in enumerate(text.split("\n")):
            if pre and (part or offset):
                self.verbatim.add(line + offset)
                self._put(part, line + offset)
            elif part:
                self._put(part, line + offset)

    def _put(self, text: str, line: int, *, marker: bool = False) -> None:
        if line >= self._size:
            return
        self._words.setdefault(line, []).append(text)
        if marker or not text.strip():
            return
        self._last_line = line
        if self._heading is not None:
            self._heading[2].append(text)
            return
        if self._fresh:
            self._fresh = False
            kind = BlockKind.PARAGRAPH
            group = self._open[-1][1] if self._open else 0
            for name, _ in reversed(self._open):
                if name in _KINDS:
                    kind = _KINDS[name]
                    break
            if kind is BlockKind.PARAGRAPH or not group:
                self._group += not group
                group = group or self._group
            start = line
            if self._table is not None:
                kind, start = BlockKind.TABLE, self._table[0]
                if len(self._leaves) > self._table[1]:
                    return
            # Text beside a heading on its line begins a block too, or the line would be a heading and no more.
            last = self._leaves[-1] if self._leaves else None
            if last is None or last.level or last.start != start:
                self._leaves.append(Leaf(kind, start, start + 1, group))

    def _close_heading(self) -> None:
        if self._heading is None:
            return
        line, level, words, anchor = self._heading
        self._heading = None
        heading = "".join(words)
        if heading.strip():
            end = max(line, self._last_line) + 1
            anchor = clean_characters(anchor)
            self._leaves.append(Leaf(BlockKind.HEADING, line, end, -line - 1, level, heading, anchor))
        self._fresh = True

    def _break(self) -> None:
        self._fresh = True

    def _separate(self, line: int) -> None:
        if parts := self._words.get(line):
            parts.append(" ")

    def _inside(self, name: str) -> bool:
        return any(opened == name for opened, _ in self._open)
