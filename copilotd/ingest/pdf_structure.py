"""Lines of a PDF's pages to a Document: running headers out, hyphenated words joined, headings found.

Pure: knows nothing of any PDF library. The seed's two heuristics (a line in capitals; a short line
before a blank one) stand beside what most documents say more plainly: bookmarks, font size, weight.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from copilotd.errors import ParseError
from copilotd.ingest.hyphens import Vocabulary, join_across
from copilotd.ingest.pdf_layout import PageText, TextLine
from copilotd.types import Block, BlockKind, Document, Section

_SHORT_LINE = 60
_MAX_HEADING = 150
_RUNNING_PAGES = 3
_TELLING_BOOKMARKS = 3
_MARGIN = 0.12
# Above this share of unknown characters the known ones are usually wrong as well.
_UNREADABLE_SHARE = 0.15

_DIGITS = re.compile(r"\d+")
_NUMBERED = re.compile(r"^(\d+(?:\.\d+)*)\.?\s+\S")
_BULLET = re.compile(r"^(?:[•◦▪‣·●○■□–—*-]|\(?(?:\d{1,3}|[a-zA-Z])[.)])\s+\S")
_CAPTION = re.compile(r"^(?:figure|fig\.|table|listing|abbildung|tabelle|figura|tableau)\s*\d", re.IGNORECASE)
_DASH = re.compile(r"^[•◦▪‣·●○■□–—*+-]\s")
_LEADER = re.compile(r"(?:\.\s?){4,}\s*\w+$|…\s*\d+$")


@dataclass(frozen=True, slots=True)
class Bookmark:
    """An entry of the outline: its title, depth from 1, and the page it leads to where that is known."""

    title: str
    level: int
    page: int | None


@dataclass(frozen=True, slots=True)
class _Item:
    """A line with what stands around it: a blank above or below, and its level if it is a heading."""

    line: TextLine
    blank_above: bool
    blank_below: bool
    level: int = 0


def build_document(
    doc_title: str,
    pages: Sequence[PageText],
    bookmarks: Sequence[Bookmark],
    info_title: str,
    warnings: Iterable[str] = (),
) -> Document:
    """Puts the pages together.

    Raises:
        ParseError: There is no text, or none that can be read.
    """
    notes = list(warnings)
    readable = _readable_pages(pages, notes)
    lines = _without_running_lines(readable)
    items = _with_levels(_spaced(lines), bookmarks)
    return _assemble(doc_title, _joined(items), info_title, tuple(notes))


def _readable_pages(pages: Sequence[PageText], notes: list[str]) -> list[PageText]:
    unreadable = [
        page.number
        for page in pages
        if page.unreadable >= 3 and page.unreadable > _UNREADABLE_SHARE * (page.unreadable + page.readable)
    ]
    empty = [page.number for page in pages if not page.lines and page.number not in unreadable]
    kept = [page for page in pages if page.lines and page.number not in unreadable]
    if not kept:
        if unreadable or any(page.unreadable for page in pages):
            raise ParseError("no readable text: its fonts don't say which characters they show")
        raise ParseError("no text (scanned?)")
    if empty:
        notes.append(f"no text on {_pages_named(empty)} (scanned or blank)")
    if unreadable:
        notes.append(f"unreadable text on {_pages_named(unreadable)}: left out")
    dropped = sum(page.unreadable for page in kept)
    if dropped:
        notes.append(f"{dropped} unreadable characters left out")
    return kept


def _pages_named(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    shown = ", ".join("-".join(str(n) for n in run) for run in runs[:10])
    more = ", …" if len(runs) > 10 else ""
    return f"page{'s' if len(numbers) > 1 else ''} {shown}{more}"


# ------------------------------------------------------------------------------- running lines


def _without_running_lines(pages: Sequence[PageText]) -> list[TextLine]:
    """Leaves out headers, footers and page numbers.

    A line of the margin runs when the same words stand at the same height on three pages, where
    numbers may differ only as page numbers do: by exactly as much as the pages.
    """
    seen: dict[tuple[str, int, tuple[int, ...]], list[TextLine]] = defaultdict(list)
    for page in pages:
        for line in _margin_lines(page):
            for key in _running_keys(line):
                seen[key].append(line)
    running = {
        id(line)
        for key, lines in seen.items()
        if len({line.page for line in lines}) >= _RUNNING_PAGES
        for line in lines
    }
    kept: list[TextLine] = []
    for page in pages:
        rest = [line for line in page.lines if id(line) not in running]
        # A page that holds nothing else is not made of margins only.
        kept += rest or page.lines
    return kept


def _margin_lines(page: PageText) -> list[TextLine]:
    """The lines in the page's margins that stand apart from its body."""
    lines = sorted(page.lines, key=lambda line: line.top)
    if len(lines) < 2:
        return []
    found: list[TextLine] = []
    for ordered, is_top in ((lines, True), (lines[::-1], False)):
        for index, line in enumerate(ordered[:3]):
            inside = ordered[index + 1] if index + 1 < len(ordered) else None
            in_margin = (
                line.bottom <= _MARGIN * line.page_height
                if is_top
                else line.top >= (1 - _MARGIN) * line.page_height
            )
            if not in_margin or inside is None:
                break
            gap = inside.top - line.bottom if is_top else line.top - inside.bottom
            edge = line.bottom if is_top else line.page_height - line.top
            # Close to the body it is only believed at the very edge or in another size.
            if gap >= 0.8 * line.size or edge <= 0.075 * line.page_height or line.size < 0.9 * inside.size:
                found += ordered[: index + 1]
    return list({id(line): line for line in found}.values())


def _running_keys(line: TextLine) -> list[tuple[str, int, tuple[int, ...]]]:
    numbers = [int(match) if len(match) < 10 else 0 for match in _DIGITS.findall(line.text)]
    words = _DIGITS.sub("#", line.text).casefold()
    height = round(line.top / 6)
    keys = []
    # Either no number moves with the page, or one of them does. Heights are binned, so that a
    # line may fall on either side of a bin's edge: both neighbours are tried.
    for moving in (-1, *range(len(numbers))):
        offsets = tuple(n - line.page if i == moving else n for i, n in enumerate(numbers))
        keys += [(f"{moving}:{words}", height + shift, offsets) for shift in (0, 1)]
    return keys


# ------------------------------------------------------------------------------------ headings


def _spaced(lines: Sequence[TextLine]) -> list[_Item]:
    """Derives blank lines from the distance between lines."""
    gaps = [
        round((below.top - above.bottom) / above.size, 1)
        for above, below in pairwise(lines)
        if above.page == below.page and below.top > above.top and above.size > 0
    ]
    usual = _usual_gap(gaps)
    blanks = [True]
    for above, below in pairwise(lines):
        size = max(1.0, min(above.size, below.size))
        gap = (below.top - above.bottom) / size
        if above.turn != below.turn:
            blanks.append(True)
        elif above.page != below.page or below.top <= above.top:
            # A new page or column: the paragraph goes on if it stopped in the middle of a sentence.
            goes_on = below.text[:1].islower() or above.text[-1:] in ",-\u2010"
            blanks.append(not goes_on)
        else:
            changed = abs(above.size - below.size) > 0.12 * size and abs(below.x0 - above.x0) < 30 * size
            blanks.append(gap > usual + 0.35 or (changed and gap > usual + 0.1))
    blanks.append(True)
    return [_Item(line, above, below) for line, above, below in zip(lines, blanks, blanks[1:], strict=False)]


def _usual_gap(gaps: Sequence[float]) -> float:
    """The distance, in line heights, of two lines of one paragraph."""
    counts = Counter(gap for gap in gaps if gap < 2.0)
    if not counts:
        return 0.3
    most = max(counts.values())
    usual = min(gap for gap, count in counts.items() if count >= 0.8 * most)
    # Few lines prove nothing about double spacing.
    return max(0.0, min(usual, 1.4 if len(gaps) >= 12 else 0.5))


def _with_levels(items: list[_Item], bookmarks: Sequence[Bookmark]) -> list[_Item]:
    sizes: Counter[float] = Counter()
    bold_characters = mono_characters = 0
    for item in items:
        length = len(item.line.text)
        sizes[round(item.line.size * 2) / 2] += length
        bold_characters += length * item.line.bold
        mono_characters += length * item.line.mono
    total = sizes.total()
    body = sizes.most_common(1)[0][0]
    bold_body = 2 * bold_characters > total
    mono_body = 2 * mono_characters > total

    marked = _bookmarked(items, bookmarks)
    kinds: list[str] = []
    for index, item in enumerate(items):
        after = items[index + 1] if index + 1 < len(items) else None
        if index in marked:
            kinds.append("bookmark")
        else:
            kinds.append(_heading_kind(item, after, body, bold_body=bold_body, mono_body=mono_body))
    if len(marked) >= _TELLING_BOOKMARKS:
        # Whoever made bookmarks marked the headings; a short line is then just a short line.
        kinds = ["" if kind == "short" else kind for kind in kinds]
    _drop_shouting(kinds)
    # Larger letters, higher heading; among headings as large as the body numbers and weight decide.
    ranks = sorted(
        {_rank_size(items[i].line.size, body) for i, kind in enumerate(kinds) if kind}, reverse=True
    )
    result: list[_Item] = []
    for index, item in enumerate(items):
        kind = kinds[index]
        if not kind:
            result.append(item)
            continue
        if kind == "bookmark":
            level = marked[index]
        else:
            level = ranks.index(_rank_size(item.line.size, body)) + 1
            numbered = _NUMBERED.match(item.line.text)
            if numbered and "." in numbered[1]:
                level = max(level, numbered[1].count(".") + 1)
            if kind == "short" and any(k in ("caps", "large", "bold") for k in kinds):
                level = max(level, 2)
        result.append(replace(item, level=min(level, 6)))
    return result


def _rank_size(size: float, body: float) -> float:
    return max(round(size * 2) / 2, body)


def _bookmarked(items: Sequence[_Item], bookmarks: Sequence[Bookmark]) -> dict[int, int]:
    """Finds the lines the outline's entries lead to: the same words on the same page."""
    places: dict[tuple[int, str], list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        places[item.line.page, _letters(item.line.text)].append(index)
    marked: dict[int, int] = {}
    last = -1
    for bookmark in bookmarks:
        key = _letters(bookmark.title)
        pages = [bookmark.page] if bookmark.page else sorted({item.line.page for item in items})
        candidates = [i for page in pages if key for i in places.get((page, key), ())]
        after = [i for i in candidates if i > last]
        if after or candidates:
            last = (after or candidates)[0]
            marked.setdefault(last, bookmark.level)
    return marked


def _letters(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum()).lstrip("0123456789")


def _heading_kind(item: _Item, after: _Item | None, body: float, *, bold_body: bool, mono_body: bool) -> str:
    """Says why a line is a heading; empty where it is none."""
    line = item.line
    text = line.text
    letters = sum(1 for character in text if character.isalpha())
    if letters < 3 or len(text) > _MAX_HEADING or line.cells > 1 or _LEADER.search(text):
        return ""
    if (line.mono and not mono_body) or _CAPTION.match(text) or _DASH.match(text):
        return ""
    if line.size >= 1.12 * body and line.size >= body + 0.8:
        return "large"
    ends_sentence = text.rstrip("\"')”’")[-1:] in ".,;:!?…-"
    if text.upper() == text and text.lower() != text:
        # Capitals alone: "INSTALLATION", not "AB-120" nor a sentence that shouts.
        words = [word for word in text.split() if sum(c.isalpha() for c in word) >= 2]
        capitals_only = letters >= 4 and letters >= 0.6 * len(text.replace(" ", ""))
        if capitals_only and words and len(text) < 100 and text[-1:] not in ".,;":
            return "caps"
        return ""
    starts_well = text[0].isupper() or bool(_NUMBERED.match(text)) or not text[0].isascii()
    if ends_sentence or not starts_well or (_BULLET.match(text) and not _NUMBERED.match(text)):
        return ""
    if line.bold and not bold_body and len(text) < 100 and item.blank_above:
        return "bold"
    follows = (
        after is not None
        and (after.line.page, after.line.turn) == (line.page, line.turn)
        and after.line.cells == 1
    )
    if len(text) < _SHORT_LINE and item.blank_above and item.blank_below and follows:
        return "short"
    return ""


def _drop_shouting(kinds: list[str]) -> None:
    """Lines of one kind in a row are a notice, a poster or a list: no headings."""
    for kind, most in (("caps", 2), ("short", 2), ("bold", 4), ("large", 5)):
        start = 0
        while start < len(kinds):
            end = start
            while end < len(kinds) and kinds[end] == kind:
                end += 1
            if end - start > most:
                kinds[start:end] = [""] * (end - start)
            start = max(end, start + 1)


# ------------------------------------------------------------------------------ joined, assembled


def _joined(items: list[_Item]) -> list[_Item]:
    """Joins words that are broken at a line's end; the whole word stands on the first line."""
    vocabulary = Vocabulary(item.line.text for item in items)
    result: list[_Item] = []
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


def _assemble(doc_title: str, items: list[_Item], info_title: str, warnings: tuple[str, ...]) -> Document:
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


def _left_edges(items: Sequence[_Item]) -> dict[int, float]:
    edges: dict[int, float] = {}
    for item in items:
        if item.line.mono:
            edges[item.line.page] = min(item.line.x0, edges.get(item.line.page, item.line.x0))
    return edges


def _title(items: Sequence[_Item], info_title: str) -> str:
    """The largest heading of the first page, or the title in the file's properties if it is printed there."""
    first = [item for item in items if item.line.page == items[0].line.page]
    headings = [item for item in first[:12] if item.level == 1]
    if headings:
        return max(headings, key=lambda item: item.line.size).line.text
    words = _letters(info_title)
    if len(words) >= 4 and words in "".join(_letters(item.line.text) for item in first):
        return info_title
    return ""


def _sections(items: Sequence[_Item], starts: Sequence[int], end: int) -> tuple[Section, ...]:
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


def _whole_heading(items: Sequence[_Item], index: int) -> tuple[str, int]:
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
        and not _NUMBERED.match(items[index].line.text)
        and len(words) < 4
    ):
        last = items[index]
        words.append(last.line.text)
        index += 1
    return " ".join(words), index


def _block_kinds(items: Sequence[_Item]) -> list[BlockKind]:
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
        elif _BULLET.match(item.line.text):
            kinds.append(BlockKind.LIST_ITEM)
        else:
            kinds.append(BlockKind.PARAGRAPH)
    return kinds


def _blocks(
    items: Sequence[_Item], kinds: Sequence[BlockKind], starts: Sequence[int], ends: Sequence[int]
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
