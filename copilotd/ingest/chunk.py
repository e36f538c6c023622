"""A Document to chunks: whole sections where they fit, else whole blocks, else whole lines."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from copilotd.ingest.lines import has_words
from copilotd.types import Block, BlockKind, Chunk, ChunkMetadata, Document, Section

CHUNKER_VERSION = 1
DEFAULT_MAX_CHUNK_CHARS = 2000
DEFAULT_CHUNK_OVERLAP_CHARS = 250

_SPLIT_LEVEL = 3
_BREAKS = (". ", "。", "！", "？", "; ", ", ", " ", "\t", "、", "，")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of blocks under one heading that is at most one chunk long, or what must still be cut."""

    section: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int
    section: int
    context: str = ""


def attach_metadata(text: str, meta: ChunkMetadata) -> dict[str, Any]:
    """Returns the text and its metadata in the one shape every later step takes."""
    return {"text": text, "metadata": meta}


def chunk_document(
    document: Document,
    *,
    source_file: str,
    relative_path: str,
    last_modified: float,
    max_chars: int = DEFAULT_MAX_CHUNK_CHARS,
    overlap_chars: int = DEFAULT_CHUNK_OVERLAP_CHARS,
) -> list[Chunk]:
    """Cuts a document into chunks of at most ``max_chars`` characters.

    Each H1-H3 section is a chunk. A longer one is cut at its H4-H6, then between blocks, with up to
    ``overlap_chars`` of whole paragraphs repeated; lists and tables stay whole while they fit. A block longer
    than a chunk is cut between lines, and a line longer than a chunk at the end of a sentence or word.

    Args:
        document: What a parser made.
        source_file: Absolute path of the file.
        relative_path: Path below the root.
        last_modified: Modification time of the file, seconds since the epoch.
        max_chars: MAX_CHUNK_CHARS.
        overlap_chars: CHUNK_OVERLAP_CHARS.
    """
    places = _Places(document)
    chunks: list[Chunk] = []
    for span in _Cutter(document, max_chars, overlap_chars).spans():
        section = document.sections[span.section]
        first_line, last_line, page, page_end = places.of(span.start, span.end)
        metadata = ChunkMetadata(
            doc_title=document.doc_title,
            section_heading=_heading(section, document.doc_title),
            last_modified=last_modified,
            source_file=source_file,
            chunk_index=len(chunks),
            char_count=span.end - span.start,
            heading_path=section.heading_path,
            relative_path=relative_path,
            line_start=first_line,
            line_end=last_line,
            page=page,
            page_end=page_end,
        )
        chunks.append(Chunk(span.start, span.end, metadata, span.section, span.context))
    return chunks


def _heading(section: Section, doc_title: str) -> str:
    return section.heading or (section.heading_path[-1] if section.heading_path else doc_title)


class _Places:
    """Finds source lines and pages of a span of the text."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._starts = [0]
        position = document.text.find("\n")
        while position >= 0:
            self._starts.append(position + 1)
            position = document.text.find("\n", position + 1)

    def of(self, start: int, end: int) -> tuple[int, int, int | None, int | None]:
        """Returns first and last source line with visible words, then first and last page."""
        first = bisect_right(self._starts, start) - 1
        last = bisect_left(self._starts, end, lo=first + 1) - 1
        while first < last and not self._visible(first, start, end):
            first += 1
        while last > first and not self._visible(last, start, end):
            last -= 1
        numbers, pages = self._document.line_numbers, self._document.pages
        if pages is None:
            return numbers[first], numbers[last], None, None
        return numbers[first], numbers[last], pages[first], pages[last]

    def _visible(self, line: int, start: int, end: int) -> bool:
        begin = max(self._starts[line], start)
        stop = self._starts[line + 1] if line + 1 < len(self._starts) else len(self._document.text)
        return has_words(self._document.text[begin : min(stop, end)])


class _Cutter:
    """Decides where a document is cut."""

    def __init__(self, document: Document, max_chars: int, overlap_chars: int) -> None:
        self._text = document.text
        self._sections = document.sections
        self._blocks = document.blocks
        self._block_starts = [block.start for block in document.blocks]
        self._section_starts = [section.start for section in document.sections]
        self._max = max_chars
        self._overlap = min(overlap_chars, max_chars // 2)

    def spans(self) -> Iterator[_Span]:
        """Yields what becomes a chunk, in order."""
        first = 0
        for index in range(1, len(self._sections) + 1):
            if index < len(self._sections) and self._sections[index].level > _SPLIT_LEVEL:
                continue
            for piece in self._pieces(first, index):
                yield from self._cut(piece)
            first = index

    def _piece(self, first: int, last: int) -> _Piece:
        """Makes the piece of sections ``first`` up to ``last`` (excluded)."""
        begin = bisect_left(self._block_starts, self._sections[first].start)
        end = bisect_left(self._block_starts, self._sections[last - 1].end)
        if begin < end:
            first = bisect_right(self._section_starts, self._blocks[begin].start) - 1
        return _Piece(first, begin, end)

    def _size(self, piece: _Piece) -> int:
        return self._blocks[piece.last - 1].end - self._blocks[piece.first].start

    def _pieces(self, first: int, last: int) -> list[_Piece]:
        """Splits a section at its deeper headings, the shallowest first, until each part fits."""
        whole = self._piece(first, last)
        if whole.first == whole.last:
            return []
        if last - first == 1 or self._size(whole) <= self._max:
            return [whole]
        level = min(section.level for section in self._sections[first + 1 : last])
        pieces: list[_Piece] = []
        begin = first
        for index in range(first + 1, last + 1):
            if index < last and self._sections[index].level > level:
                continue
            parts = self._pieces(begin, index)
            if pieces and parts and self._bare(pieces[-1]):
                joined = _Piece(pieces[-1].section, pieces[-1].first, parts[0].last)
                if self._size(joined) <= self._max:
                    pieces[-1] = joined
                    parts = parts[1:]
            pieces += parts
            begin = index
        return pieces

    def _bare(self, piece: _Piece) -> bool:
        return all(block.kind is BlockKind.HEADING for block in self._blocks[piece.first : piece.last])

    def _cut(self, piece: _Piece) -> Iterator[_Span]:
        blocks = self._blocks[piece.first : piece.last]
        if self._size(piece) <= self._max:
            yield _Span(blocks[0].start, blocks[-1].end, piece.section)
            return
        start: int | None = None
        end = 0
        context = ""
        whole: list[Block] = []
        for unit in self._units(blocks):
            if start is not None and unit[-1].end - start <= self._max:
                end = unit[-1].end
                whole += unit
                continue
            for block in [unit] if unit[-1].end - unit[0].start <= self._max else [[block] for block in unit]:
                size = block[-1].end - block[0].start
                if start is not None and block[-1].end - start <= self._max:
                    end = block[-1].end
                    whole += block
                    continue
                if size <= self._max:
                    if start is not None:
                        yield _Span(start, end, piece.section, context)
                        start = self._overlap_start(whole, start, block[0].start, block[-1].end)
                    else:
                        start = block[0].start
                    whole = [kept for kept in whole if kept.start >= start] + block
                    end, context = block[-1].end, ""
                    continue
                if start is not None and not self._can_begin(block[0], start):
                    yield _Span(start, end, piece.section, context)
                    start, context = None, ""
                *done, tail = self._cut_block(block[0], start, piece.section, context)
                yield from done
                start, end, context = tail.start, tail.end, tail.context
                whole = []
        if start is not None:
            yield _Span(start, end, piece.section, context)

    def _units(self, blocks: Sequence[Block]) -> Iterator[list[Block]]:
        unit: list[Block] = []
        for block in blocks:
            if unit and block.group != unit[-1].group:
                yield unit
                unit = []
            unit.append(block)
        if unit:
            yield unit

    def _overlap_start(self, before: Sequence[Block], previous: int, start: int, end: int) -> int:
        """Returns where a chunk starts that repeats whole paragraphs of the one before it."""
        begin = start
        for block in reversed(before):
            too_long = start - block.start > self._overlap or end - block.start > self._max
            if too_long or block.start <= previous or block.kind is BlockKind.HEADING:
                break
            begin = block.start
        return begin

    def _head(self, block: Block) -> int:
        """Returns the end of what is repeated when ``block`` is cut; a header that is too long is not."""
        return block.header_end if block.header_end - block.start <= self._max // 2 else block.start

    def _can_begin(self, block: Block, start: int) -> bool:
        """Tells whether a chunk begun at ``start`` has room for the header and a line of ``block``."""
        line_end = self._text.find("\n", self._head(block) + 1, block.end)
        if 0 <= line_end <= block.start + self._max:
            return line_end - start <= self._max
        return block.start - start < self._max // 2

    def _cut_block(self, block: Block, start: int | None, section: int, context: str) -> list[_Span]:
        """Cuts a block longer than a chunk, filling the chunk that was begun at ``start`` first."""
        head = self._head(block)
        header = self._text[block.start : head]
        spans: list[_Span] = []
        begin = block.start if start is None else start
        while block.end - begin > self._max:
            end = self._break(begin, max(begin, head), begin + self._max)
            if self._trim(begin, end) > begin:
                spans.append(_Span(begin, self._trim(begin, end), section, context))
            begin = self._skip_blank(end, block.end)
            context = header if begin >= head else ""
        if begin < block.end:
            spans.append(_Span(begin, block.end, section, context))
        return spans

    def _break(self, begin: int, floor: int, limit: int) -> int:
        """Returns where to cut: behind the last whole line, else sentence, else word, up to ``limit``."""
        newline = self._text.rfind("\n", floor + 1, limit + 1)
        if newline >= 0:
            return newline
        for mark in _BREAKS:
            found = self._text.rfind(mark, begin + self._max // 2, limit)
            if found >= 0:
                return found + len(mark)
        return limit

    def _trim(self, begin: int, end: int) -> int:
        return begin + len(self._text[begin:end].rstrip())

    def _skip_blank(self, position: int, end: int) -> int:
        """Returns where the next line with something in it starts; its indentation is kept."""
        rest = self._text[position:end]
        blank = len(rest) - len(rest.lstrip())
        newline = rest.rfind("\n", 0, blank)
        return position + (newline + 1 if newline >= 0 else blank)
