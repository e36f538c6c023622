"""Lines of a PDF's pages to a Document: unreadable pages out, broken words joined, blocks and sections.

Pure: knows nothing of any PDF library.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from copilotd.errors import NoText
from copilotd.ingest.hyphens import Vocabulary, join_across
from copilotd.ingest.pdf_headings import BULLET, NUMBERED, Bookmark, Item, letters, spaced, with_levels
from copilotd.ingest.pdf_layout import PageText, pages_named
from copilotd.ingest.pdf_margins import without_running_lines
from copilotd.types import Block, BlockKind, Document, Section


def build_document(
    doc_title: str,
    pages: Sequence[PageText],
    bookmarks: Sequence[Bookmark],
    info_title: str,
    warnings: Iterable[str] = (),
) -> Document:
    """Puts the pages together.

    Raises:
        NoText: There is none, or none that can be read.
    """
    notes = list(warnings)
    readable = _readable_pages(pages, notes)
    lines = without_running_lines(readable)
    items = with_levels(spaced(lines), bookmarks)
    return _assemble(doc_title, _joined(items), info_title, tuple(notes))


def _readable_pages(pages: Sequence[PageText], notes: list[str]) -> list[PageText]:
    unreadable = [page.number for page in pages if page.is_unreadable]
    empty = [page.number for page in pages if not page.lines and page.number not in unreadable]
    kept = [page for page in pages if page.lines and page.number not in unreadable]
    if not kept:
        if unreadable or any(page.unreadable for page in pages):
            raise NoText("no readable text: its fonts don't say which characters they show")
        raise NoText("no text (scanned?)")
    if empty:
        notes.append(f"no text on {pages_named(empty)} (scanned or blank)")
    if unreadable:
        notes.append(f"unreadable text on {pages_named(unreadable)}: left out")
    dropped = sum(page.unreadable for page in kept)
    if dropped:
        notes.append(f"{dropped} unreadable characters left out")
    return kept


def _joined(items: list[Item]) -> list[Item]:
    """Joins words that are broken at a line's end; the whole word stands on the first line."""
    vocabulary = Vocabulary(item.line.text for item in items)
    result: list[Item] = []
    for item in items:
        before = result[-1] if result else None
        if before is not None and not item.level and not before.level and not item.line.mono:
            joined = join_across(before.line.text, item.line.text, vocabulary)
            if joined is not None:
                first, rest = joined
                result[-1] = replace(before, line=replace(before.line, text=first))
                if not rest:
                    result[-1] = replace(result[-1], blank_below=item.blank_below)
                    continue
                result[-1] = replace(result[-1], blank_below=False)
                item = replace(item, line=replace(item.line, text=rest), blank_above=False)
        result.append(item)
    return result


def _assemble(doc_title: str, items: list[Item], info_title: str, warnings: tuple[str, ...]) -> Document:
    texts: list[str] = []
    pages: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    kinds = _block_kinds(items)
    offset = 0

    left_edges = _left_edges(items)
    for index, item in enumerate(items):
        if index and (items[index - 1].blank_below or item.blank_above):
            texts.append("")
            pages.append(items[index - 1].line.page)
            offset += 1
        starts.append(offset)
        text = item.line.text
        if kinds[index] is BlockKind.CODE:
            character = (item.line.x1 - item.line.x0) / max(1, len(text))
            indent = (item.line.x0 - left_edges[item.line.page]) / character if character > 0 else 0
            text = " " * min(40, max(0, round(indent))) + text
        texts.append(text)
        pages.append(item.line.page)
        ends.append(offset + len(text))
        offset += len(text) + 1
    text = "\n".join(texts)
    return Document(
        doc_title=doc_title,
        title=_title(items, info_title),
        text=text,
        line_numbers=tuple(range(1, len(texts) + 1)),
        sections=_sections(items, starts, len(text)),
        blocks=_blocks(items, kinds, starts, ends),
        pages=tuple(pages),
        warnings=warnings,
    )


def _left_edges(items: Sequence[Item]) -> dict[int, float]:
    edges: dict[int, float] = {}
    for item in items:
        if item.line.mono:
            edges[item.line.page] = min(item.line.x0, edges.get(item.line.page, item.line.x0))
    return edges


def _title(items: Sequence[Item], info_title: str) -> str:
    """The largest heading of the first page, or the title in the file's properties if it is printed there."""
    first = [item for item in items if item.line.page == items[0].line.page]
    headings = [item for item in first[:12] if item.level == 1]
    if headings:
        return max(headings, key=lambda item: item.line.size).line.text
    words = letters(info_title)
    if len(words) >= 4 and words in "".join(letters(item.line.text) for item in first):
        return info_title
    return ""


def _sections(items: Sequence[Item], starts: Sequence[int], end: int) -> tuple[Section, ...]:
    opened: list[tuple[str, int, tuple[str, ...], int]] = []
    path: list[tuple[int, str]] = []
    page_section = 0
    index = 0
    while index < len(items):
        item = items[index]
        start = 0 if not opened else starts[index]
        if item.level:
            heading, index = _whole_heading(items, index)
            path = [entry for entry in path if entry[0] < item.level]
            path.append((item.level, heading))
            opened.append((heading, item.level, tuple(name for _, name in path), start))
            continue
        if not path and item.line.page != page_section:
            page_section = item.line.page
            heading = f"Page {page_section}"
            opened.append((heading, 0, (heading,), start))
        index += 1
    bounds = [entry[3] for entry in opened[1:]] + [end]
    return tuple(
        Section(heading=heading, level=level, heading_path=heading_path, start=start, end=bound)
        for (heading, level, heading_path, start), bound in zip(opened, bounds, strict=True)
    )


def _whole_heading(items: Sequence[Item], index: int) -> tuple[str, int]:
    """Puts a heading of several lines together; returns it and the index behind it."""
    first = items[index]
    words = [first.line.text]
    last = first
    index += 1
    while (
        index < len(items)
        and items[index].level == first.level
        and not (last.blank_below or items[index].blank_above)
        and abs(items[index].line.size - first.line.size) < 0.6
        and items[index].line.bold == first.line.bold
        and not NUMBERED.match(items[index].line.text)
        and len(words) < 4
    ):
        last = items[index]
        words.append(last.line.text)
        index += 1
    return " ".join(words), index


def _block_kinds(items: Sequence[Item]) -> list[BlockKind]:
    mono = sum(len(item.line.text) for item in items if item.line.mono)
    code_apart = 2 * mono <= sum(len(item.line.text) for item in items)
    kinds: list[BlockKind] = []
    for index, item in enumerate(items):
        neighbours = [items[i] for i in (index - 1, index + 1) if 0 <= i < len(items)]
        if item.level:
            kinds.append(BlockKind.HEADING)
        elif item.line.mono and code_apart:
            kinds.append(BlockKind.CODE)
        elif item.line.cells > 1 and any(n.line.cells > 1 and not n.level for n in neighbours):
            kinds.append(BlockKind.TABLE)
        elif BULLET.match(item.line.text):
            kinds.append(BlockKind.LIST_ITEM)
        else:
            kinds.append(BlockKind.PARAGRAPH)
    return kinds


def _blocks(
    items: Sequence[Item], kinds: Sequence[BlockKind], starts: Sequence[int], ends: Sequence[int]
) -> tuple[Block, ...]:
    blocks: list[Block] = []
    group = -1
    first = 0
    indent = median(item.line.size for item in items)
    for index in range(1, len(items) + 1):
        if index < len(items):
            above, here = items[index - 1], items[index]
            blank = above.blank_below or here.blank_above
            old, new = kinds[index - 1], kinds[index]
            if old is BlockKind.TABLE and new is BlockKind.TABLE and here.line.page == above.line.page:
                continue
            if not blank:
                if old is BlockKind.LIST_ITEM and new is BlockKind.PARAGRAPH:
                    continue
                indented = here.line.x0 > above.line.x0 + indent and here.line.top > above.line.top
                if old is new and new in (BlockKind.CODE, BlockKind.HEADING):
                    continue
                if old is new is BlockKind.PARAGRAPH and not indented:
                    continue
        kind = kinds[first]
        if not (kind is BlockKind.LIST_ITEM and blocks and blocks[-1].kind is BlockKind.LIST_ITEM):
            group += 1
        header_end = ends[first] if kind is BlockKind.TABLE else starts[first]
        blocks.append(Block(kind, starts[first], ends[index - 1], group, header_end))
        first = index
    return tuple(blocks)
